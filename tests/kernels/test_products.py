"""oneDNN's products of inference: the numbers of torch's, and only where they serve."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from brimful.kernels import products
from brimful.kernels.products import OneDnn
from brimful.model.door import within
from builders.encoders import random_row, small

pytestmark = pytest.mark.skipif(
    not all(hasattr(torch.ops.mkldnn, name) for name in products._OPERATIONS),
    reason="this torch has no oneDNN with laid-out weights",
)


@pytest.fixture
def any_rows(monkeypatch):
    monkeypatch.setattr(products, "FEWEST_ROWS", 1)


@pytest.mark.usefixtures("any_rows")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_products_are_those_of_float64(seed, bias, tokens):
    torch.manual_seed(seed)
    linear = nn.Linear(96, 40, bias=bias)
    x = torch.randn(tokens, 96)
    mode = OneDnn()
    with torch.inference_mode():
        for _ in range(2):
            with mode:
                found = linear(x)
            wanted = F.linear(x.double(), linear.weight.double(), linear.bias.double() if bias else None)
            torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-5)
    assert len(mode.copies) == 1


@pytest.mark.usefixtures("any_rows")
@pytest.mark.parametrize("model", ["bert", "prenorm", "modern"])
def test_hidden_states_are_those_of_torch(seed, model):
    torch.manual_seed(seed)
    encoder = small(model).eval()
    batch = random_row([128, 1, 60, 33], 7)
    with torch.inference_mode():
        wanted = encoder(batch)
        with (mode := OneDnn()):
            found = encoder(batch)
    assert len(mode.copies) >= 16
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_products_of_few_rows_are_torch_s():
    """Their number of rows differs from batch to batch, and oneDNN would keep something for each."""
    linear = nn.Linear(8, 4)
    with torch.inference_mode(), OneDnn() as mode:
        linear(torch.randn(products.FEWEST_ROWS - 1, 8))
        assert not mode.copies
        linear(torch.randn(products.FEWEST_ROWS, 8))
        assert mode.copies


@pytest.mark.usefixtures("any_rows")
def test_everything_else_is_torch_s(seed):
    torch.manual_seed(seed)
    linear, x = nn.Linear(8, 4), torch.randn(5, 8)
    with (mode := OneDnn()):
        linear(x).sum().backward()
        with torch.inference_mode():
            F.linear(x, linear.weight[:2])
            linear(x[None])
            linear.double()(x.double())
            with torch.autocast("cpu", torch.bfloat16):
                linear.float()(x)
    assert not mode.copies
    assert linear.weight.grad is not None


def test_short_runs_and_other_devices_are_left_alone(monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    assert isinstance(within("products_of_run", torch.device("cpu"), products.FEWEST, "fp32"), OneDnn)
    assert not isinstance(within("products_of_run", torch.device("cpu"), products.FEWEST - 1, "fp32"), OneDnn)
    assert not isinstance(within("products_of_run", torch.device("cuda"), 1 << 20, "fp32"), OneDnn)


@pytest.mark.usefixtures("any_rows")
def test_a_teacher_s_weights_are_not_copied(seed, monkeypatch):
    """Without a gradient, rows by 16: oneDNN's. With one, or other rows: torch's."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    torch.manual_seed(seed)
    linear, x = nn.Linear(96, 40), torch.randn(33, 96)
    mode = within("products_of_teacher", torch.device("cpu"))
    with mode:
        with torch.no_grad():
            for rows in (32, 33):
                wanted = F.linear(x[:rows].double(), linear.weight.double(), linear.bias.double())
                torch.testing.assert_close(linear(x[:rows]).double(), wanted, atol=1e-5, rtol=1e-5)
            linear.weight.mul_(2)
            torch.testing.assert_close(linear(x[:32]), F.linear(x[:32].clone(), linear.weight, linear.bias))
        linear(x[:32]).sum().backward()
    assert linear.weight.grad is not None
    assert not mode.copies
    assert not isinstance(within("products_of_teacher", torch.device("cuda")), OneDnn)
