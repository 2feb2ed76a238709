"""The first collective on which ranks disagree: traces in the format of torch's flight recorder."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from brimful.ranks.flight import first_disagreement
from builders.ranks import on_two_ranks


def entry(number: int, name: str = "nccl:all_reduce", sizes: tuple[int, ...] = (1024,), **more: Any) -> dict:
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": name,
        "input_sizes": [list(sizes)],
        "input_dtypes": ["Float"],
        "output_sizes": [list(sizes)],
        "output_dtypes": ["Float"],
        "state": "completed",
        "is_p2p": False,
        "retired": True,
        "timeout_ms": 600000,
    } | more


def trace(*entries: dict) -> dict:
    return {"version": "2.10", "entries": list(entries)}


def test_ranks_that_have_begun_the_same_agree():
    same = [entry(n) for n in range(1, 5)]
    assert first_disagreement({0: trace(*same), 1: trace(*same)}) == ""
    assert first_disagreement({0: trace(*same), 1: trace(*same[2:])}) == "", "a ring buffer forgets"
    assert first_disagreement({0: trace(), 1: trace()}) == ""


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        (
            {0: [entry(1), entry(2)], 1: [entry(1)], 2: [entry(1), entry(2)]},
            "nccl:all_reduce 2 of Float [1024] has begun on ranks 0 and 2, not on rank 1",
        ),
        (
            {0: [entry(1), entry(2)], 1: [entry(1), entry(2, "nccl:all_gather")]},
            "collective nccl:all_reduce 2 of Float [1024] on rank 0,"
            " nccl:all_gather 2 of Float [1024] on rank 1",
        ),
        (
            {0: [entry(7), entry(8)], 1: [entry(7), entry(8, sizes=(512,))]},
            "collective nccl:all_reduce 8 of Float [1024] on rank 0,"
            " nccl:all_reduce 8 of Float [512] on rank 1",
        ),
        (
            {
                0: [entry(1), entry(2, state="started", retired=False)],
                1: [entry(1), entry(2, state="scheduled", retired=False)],
            },
            "nccl:all_reduce 2 of Float [1024] runs on the device of rank 0, and is only scheduled on rank 1",
        ),
        (
            {0: [entry(1), entry(2, is_p2p=True)], 1: [entry(1)]},
            "",
        ),
    ],
)
def test_the_first_disagreement_is_named(traces: dict[int, list[dict]], said: str):
    assert first_disagreement({rank: trace(*entries) for rank, entries in traces.items()}) == said


RANK = """
import json, sys, time
from pathlib import Path
import torch, torch.distributed as dist
from brimful.ranks.flight import own_trace, record
record()
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(3))
if rank == 0:
    work = dist.all_reduce(torch.ones(5), async_op=True)
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(own_trace()))
if rank == 1:
    dist.all_reduce(torch.ones(5))
else:
    work.wait()
dist.destroy_process_group()  # a group that still lives as the interpreter ends may abort the process
"""


@pytest.mark.distributed
@pytest.mark.skipif(torch.__version__.startswith("2.11"), reason="torch 2.11 records nothing of gloo")
def test_traces_that_torch_has_recorded_of_gloo(tmp_path: Path):
    on_two_ranks(RANK, tmp_path)
    traces = {rank: json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)}
    assert first_disagreement(traces) == "gloo:all_reduce 2 of Float [5] has begun on rank 0, not on rank 1"
