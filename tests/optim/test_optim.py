"""Optimizers: against hand-written references, and what each parameter is given to."""

from typing import get_args, get_type_hints

import pytest
import torch
from torch import nn

from brimful.base.errors import BrimfulError
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import EncoderConfig
from brimful.optim.build import build_optimizers
from brimful.optim.config import OptimizerConfig
from brimful.optim.lamb import Lamb
from brimful.optim.muon import Muon, orthogonalise

NAMES = get_args(get_type_hints(OptimizerConfig)["name"])


@pytest.fixture
def seed(seed):
    torch.manual_seed(seed)
    return seed


@pytest.mark.parametrize("shape", [(3, 16, 64), (3, 64, 16), (1, 10, 100), (2, 1, 30)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_orthogonalise_brings_singular_values_near_one_and_keeps_directions(seed, shape, scale):
    matrices = scale * torch.randn(shape, dtype=torch.float64)
    made = orthogonalise(matrices)
    assert made.shape == matrices.shape
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    values = u.mT @ made @ vh.mT
    diagonal = values.diagonal(dim1=-2, dim2=-1)
    assert ((diagonal > 0.6) & (diagonal < 1.3)).all(), diagonal
    torch.testing.assert_close(values, torch.diag_embed(diagonal), atol=1e-9, rtol=0)


def test_orthogonalise_takes_each_matrix_alone_and_zeros_stay_zero(seed):
    matrices = torch.randn(3, 8, 20)
    matrices[1] = 0
    together = orthogonalise(matrices)
    assert (together[1] == 0).all()
    for index in range(3):
        torch.testing.assert_close(together[index], orthogonalise(matrices[index : index + 1])[0])


def steps_of(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: list[list]) -> None:
    for each in gradients:
        for parameter, gradient in zip(parameters, each, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


def test_muon_equals_torch_muon(seed):
    """Ours in float32 for a single matrix against `torch.optim.Muon`, whose iteration is in bfloat16."""
    weight, gradients = torch.randn(24, 16), [torch.randn(24, 16) for _ in range(3)]
    ours, theirs = nn.Parameter(weight.clone()), nn.Parameter(weight.clone())
    steps_of(Muon([{"params": [ours]}], lr=0.02, weight_decay=0.1), [ours], [[g] for g in gradients])
    peer = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True)
    steps_of(peer, [theirs], [[g] for g in gradients])
    moved = (theirs - weight).norm()
    assert (ours - theirs).norm() < 0.05 * moved


def test_adamw_equals_the_formula(seed):
    config = OptimizerConfig(learning_rate=0.03, weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-6)
    start = {"matrix": torch.randn(5, 3).double(), "vector": torch.randn(3).double()}
    parameters = {name: nn.Parameter(value.clone()) for name, value in start.items()}
    (optimizer,) = build_optimizers(config, parameters, {})
    expected = {name: value.clone() for name, value in start.items()}
    first = {name: torch.zeros_like(value) for name, value in start.items()}
    second = {name: torch.zeros_like(value) for name, value in start.items()}
    for step in range(1, 8):
        gradients = {name: torch.randn_like(value) for name, value in start.items()}
        steps_of(optimizer, list(parameters.values()), [list(gradients.values())])
        for name, gradient in gradients.items():
            first[name] = 0.8 * first[name] + 0.2 * gradient
            second[name] = 0.95 * second[name] + 0.05 * gradient**2
            unbiased = first[name] / (1 - 0.8**step), second[name] / (1 - 0.95**step)
            decay = 0.1 if name == "matrix" else 0.0
            expected[name] = expected[name] * (1 - 0.03 * decay)
            expected[name] = expected[name] - 0.03 * unbiased[0] / (unbiased[1].sqrt() + 1e-6)
            torch.testing.assert_close(parameters[name].data, expected[name], atol=1e-12, rtol=1e-12)


def some_parameters() -> tuple[dict[str, nn.Parameter], dict[str, int]]:
    """Parameters of every kind that there is, and the fused blocks among them."""
    shapes = {"qkv": (12, 5), "down": (6, 4), "embedding": (9, 4), "norm": (7,)}
    parameters = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    return parameters, {"qkv": 3, "down": 1}


def random_gradients(parameters: dict[str, nn.Parameter]) -> None:
    for parameter in parameters.values():
        parameter.grad = torch.randn_like(parameter)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_by_parameter_are_all_that_a_resumed_run_needs(seed, name):
    """As a checkpoint holds them: what is resumed started from other weights, and has the same bits."""
    config = OptimizerConfig(name=name, learning_rate=0.05)
    runs, saved = [], {}
    for resumed in (False, True):
        parameters, blocks = some_parameters()
        optimizers = build_optimizers(config, parameters, blocks)
        owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
        if resumed:
            for key, parameter in parameters.items():
                parameter.data.copy_(saved[key])
                prefix = f"{key}."
                owner[parameter].state[parameter] = {
                    k.removeprefix(prefix): v.clone() for k, v in saved.items() if k.startswith(prefix)
                }
        for step in range(3 if resumed else 0, 6):
            if step == 3 and not resumed:
                for key, parameter in parameters.items():
                    saved[key] = parameter.detach().clone()
                    state = owner[parameter].state[parameter]
                    saved |= {f"{key}.{k}": v.clone() for k, v in state.items()}
            torch.manual_seed(seed + step)
            random_gradients(parameters)
            for optimizer in optimizers:
                optimizer.step()
        runs.append(parameters)
    assert all(isinstance(value, torch.Tensor) for value in saved.values())
    assert [key for key in runs[0] if not runs[0][key].equal(runs[1][key])] == []


@pytest.mark.parametrize("architecture", ["modern", "bert", "prenorm"])
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_one_group_and_vectors_do_not_decay(architecture, name):
    shape = {"vocabulary_size": 50, "hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 24}
    encoder = Encoder(EncoderConfig(architecture=architecture, **shape))
    modules = nn.ModuleDict({"encoder": encoder, "head": MaskedLMHead(encoder)})
    parameters = dict(modules.named_parameters())
    names = {parameter: key for key, parameter in parameters.items()}
    blocks = {f"encoder.{key}": count for key, count in encoder.fused_blocks().items()}
    assert blocks.keys() <= parameters.keys()
    config = OptimizerConfig(name=name, learning_rate=0.01, weight_decay=0.1)
    optimizers = build_optimizers(config, parameters, blocks)
    on_muon = []
    seen = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            assert group["peak"] > 0
            for parameter in group["params"]:
                seen.append(names[parameter])
                assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)
                if isinstance(optimizer, Muon):
                    on_muon.append(names[parameter])
                    assert group["blocks"] == blocks[names[parameter]]
                else:
                    assert group["peak"] == 0.01
                if isinstance(optimizer, Lamb):
                    assert group["blocks"] == blocks.get(names[parameter], 1)
    assert isinstance(optimizers[0], Lamb) == (name == "lamb")
    assert sorted(seen) == sorted(parameters)
    assert sorted(on_muon) == (sorted(blocks) if name == "muon" else [])
    inside = {key for key, p in parameters.items() if p.ndim == 2 and key.startswith("encoder.layers")}
    assert inside == blocks.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", -1.0),
        ("weight_decay", float("nan")),
        ("beta1", 1.0),
        ("beta2", -0.1),
        ("epsilon", -1.0),
        ("epsilon", 0.0),
    ],
)
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(BrimfulError, match=rf"optimizer\.{name} is {value}"):
        OptimizerConfig(**{name: value})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("architecture", ["bert", "modern", "prenorm"])
def test_layer_decay_lowers_the_rate_layer_by_layer(name, architecture):
    """The head has the rate, layer l of 0 to L - 1 the rate * decay^(L - l), embeddings decay^(L + 1)."""
    shape = {"vocabulary_size": 64, "hidden_size": 16, "layers": 3, "heads": 2, "intermediate_size": 16}
    encoder = Encoder(EncoderConfig(architecture=architecture, max_length=8, **shape))
    parameters = dict(encoder.named_parameters()) | {"head": nn.Parameter(torch.zeros(2, 16))}
    config = OptimizerConfig(name=name, learning_rate=1.0, muon_learning_rate=1.0, layer_decay=0.5)
    optimizers = build_optimizers(config, parameters, encoder.fused_blocks(), depths=encoder.depths())
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    names = {parameter: name for name, parameter in parameters.items()}
    peaks = {names[parameter]: group["peak"] for group in groups for parameter in group["params"]}
    assert peaks.keys() == parameters.keys()
    for key, peak in peaks.items():
        part, _, rest = key.partition(".")
        layer = {"layers": 3 - int(rest[:1]) if part == "layers" else 0, "head": 0, "final_norm": 0}
        assert peak == 0.5 ** layer.get(part, 4), key
