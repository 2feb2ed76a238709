"""Which device a process takes."""

import warnings

import pytest
import torch

from brimful.base.device import default_device
from brimful.base.distributed import world
from brimful.base.errors import BrimfulError

WHEELS = {
    "cu126": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90",
    "cu130": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120",
}


@pytest.fixture
def device(monkeypatch):
    """A function that pretends a CUDA device and a build of torch."""

    def pretend(capability, build="cu130", architectures=None):
        def get_capability(device):
            warnings.warn("not compatible with the current PyTorch installation", stacklevel=1)
            return capability

        cuda = torch.cuda
        monkeypatch.setattr(cuda, "is_available", lambda: True)
        monkeypatch.setattr(cuda, "device_count", lambda: 4)
        monkeypatch.setattr(cuda, "get_device_capability", get_capability)
        monkeypatch.setattr(cuda, "get_device_name", lambda device: "Tesla V100-SXM2-16GB")
        monkeypatch.setattr(cuda, "get_arch_list", lambda: (architectures or WHEELS[build]).split())
        monkeypatch.setattr(torch, "__version__", f"2.13.0+{build}")

    return pretend


@pytest.mark.parametrize(
    ("capability", "architectures", "served"),
    [
        ((7, 0), WHEELS["cu130"], False),
        ((7, 5), WHEELS["cu130"], True),
        ((8, 9), WHEELS["cu130"], True),  # sm_86 runs on it
        ((9, 0), WHEELS["cu130"], True),
        ((12, 1), WHEELS["cu130"], True),
        ((13, 0), WHEELS["cu130"], True),  # from the PTX of compute_120
        ((11, 0), WHEELS["cu130"], False),
        ((7, 0), WHEELS["cu126"], True),
        ((6, 1), WHEELS["cu126"], True),
        ((10, 0), WHEELS["cu126"], False),
        ((8, 0), "sm_86", False),
        ((9, 0), "sm_80", False),
        ((9, 0), "sm_90a", True),
        ((10, 0), "sm_90a", False),
        ((9, 0), "compute_90", True),
        ((12, 0), "compute_90", True),
        ((12, 0), "compute_90a", False),
        ((8, 0), "compute_90", False),
        ((10, 3), "sm_100f", True),
        ((10, 3), "sm_100a", False),
    ],
)
def test_a_build_serves_what_it_has_code_for(device, capability, architectures, served):
    device(capability, architectures=architectures)
    if served:
        assert default_device() == torch.device("cuda", 0)
    else:
        with pytest.raises(BrimfulError, match="has no code for"):
            default_device()


def test_one_line_names_the_build_that_serves_an_older_gpu(device, recwarn):
    device((7, 0))
    with pytest.raises(BrimfulError) as raised, world():
        pass
    assert str(raised.value) == (
        "torch 2.13.0+cu130 has no code for Tesla V100-SXM2-16GB (compute capability 7.0): pip install"
        " torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126; or use the CPU, with"
        " CUDA_VISIBLE_DEVICES= (empty)"
    )
    assert not recwarn.list


def test_a_newer_gpu_needs_a_newer_build(device):
    device((12, 0), "cu126")
    with pytest.raises(BrimfulError, match="pip install --upgrade torch;"):
        default_device()


def test_each_rank_of_a_machine_has_its_own_device(device, monkeypatch):
    device((9, 0))
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert default_device() == torch.device("cuda", 3)


def test_without_a_gpu_it_is_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")


def test_a_process_without_a_gpu_of_its_own_is_told_how_many_there_are(device, monkeypatch):
    device((9, 0))
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(BrimfulError, match=r"local rank 4 .* at most 4 processes"):
        default_device()
