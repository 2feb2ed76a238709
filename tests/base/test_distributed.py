"""What ranks on CPUs send each other, and which device a process takes."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from brimful.base import distributed
from brimful.base.device import default_device
from brimful.base.distributed import agree_on_name, is_rank_failure, join_ranks
from brimful.base.errors import BrimfulError


@pytest.mark.parametrize("late", [0, 1, 2])
def test_ranks_agree_on_a_name_of_their_own_in_a_store_that_earlier_ranks_have_used(late):
    store, names = dist.HashStore(), []
    store.set("brimful asks 1", "a rank that was killed before it had an answer")
    for _ in range(3):

        def join(rank: int) -> str:
            time.sleep(0.2 if rank == late else 0)
            return agree_on_name(store, rank, 3)

        with ThreadPoolExecutor(3) as ranks:
            found = set(ranks.map(join, range(3)))
        assert len(found) == 1
        names += found
    assert len(set(names)) == 3


def test_a_rank_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(distributed, "MAX_START_SECONDS", 0.1)
    store = dist.HashStore()
    with ThreadPoolExecutor(1) as other:
        joined = other.submit(agree_on_name, store, 1, 3)
        with pytest.raises(BrimfulError, match="rank 0 has waited for rank 2 in vain"):
            agree_on_name(store, 0, 3)
        joined.result()
        store.set_timeout(timedelta(seconds=0.1))
        with pytest.raises(BrimfulError, match="rank 1 has waited for rank 0 in vain"):
            agree_on_name(store, 1, 3)


def test_errors_of_other_kinds_are_not_of_other_ranks():
    closed = "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:42"
    assert is_rank_failure(RuntimeError(closed))
    assert not is_rank_failure(RuntimeError("shape mismatch"))
    assert not is_rank_failure(BrimfulError("gloo/transport"))


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
