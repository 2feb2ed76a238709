"""Which device a process takes."""

import re

import pytest
import torch

from brimful.base.device import default_device
from brimful.base.distributed import join_ranks
from brimful.base.errors import BrimfulError


@pytest.fixture
def gpus(monkeypatch):
    """Four GPUs that are not there; returns the errors that a kernel on them raises."""
    errors: list[Exception] = []

    def zeros(*_, **__):
        if errors:
            raise errors[0]
        return torch.ones(1)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100-SXM2-16GB")
    monkeypatch.setattr(torch, "zeros", zeros)
    return errors


def test_one_line_names_the_builds_that_serve_other_gpus(gpus):
    why = "CUDA error: no kernel image is available for execution on the device\nCompile with ..."
    gpus.append(RuntimeError(why))
    version = re.escape(torch.__version__.partition("+")[0])
    words = rf"has no code for Tesla V100-SXM2-16GB: .*torch=={version} .*cu126.*--upgrade"
    with pytest.raises(BrimfulError, match=words) as raised, join_ranks():
        pass
    assert "\n" not in str(raised.value)
    gpus[:] = [RuntimeError("CUDA error: device-side assert triggered")]
    with pytest.raises(RuntimeError, match="device-side assert"):
        default_device()


@pytest.mark.usefixtures("gpus")
def test_each_rank_of_a_machine_has_its_own_device(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert default_device() == torch.device("cuda", 3)
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(BrimfulError, match=r"local rank 4 .* at most 4 processes"):
        default_device()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")
