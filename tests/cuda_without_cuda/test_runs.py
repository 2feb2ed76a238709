"""Whole runs on a CUDA device that records: the clock, memory, checkpoints, and failing compilers."""

import re
from pathlib import Path

import pytest
from cuda_without_cuda.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PEAK = 989e12
"""Flops per second of an H100 in bf16, dense, from its data sheet."""


@pytest.mark.parametrize("mode", ["eager", "graphs"])
def test_seconds_are_those_of_the_wall(train: Run, mode: str) -> None:
    """And so are tokens per second, and the utilisation. A kernel takes 3 ms, so the host is far ahead, even
    on a busy machine. Wall time passes between the beginnings of updates; before the first one, the run waits
    for its batch."""
    config = {"trainer.steps": 16, "trainer.compile": mode == "graphs", "validation_tokens": 0}
    answer = train(config, mode=mode, settings={"kernel_ns": 3_000_000})
    lines = {line["step"]: line for line in answer.values["metrics"] if "seconds" in line}
    assert set(lines) == {4, 8, 12, 16}
    ends = {u["step"] + 1: u["ended"] for u in answer.updates}
    for step in (8, 12):
        wall = ends[step] - ends[step - 4]
        seconds = lines[step]["seconds"] - lines[step - 4]["seconds"]
        assert seconds == pytest.approx(wall, rel=0.05), step
        assert wall > 0.1
        since_start = ends[step] - answer.values["began"]
        speed = lines[step]["tokens"] / since_start
        assert lines[step]["tokens_per_second"] == pytest.approx(speed, rel=0.05)
        flops = sum(update["flops"] for update in answer.updates[step - 4 : step])
        assert lines[step]["mfu"] == pytest.approx(flops / wall / PEAK, rel=0.05)


def test_without_memory_for_the_size_that_was_set_one_line_says_what_to_do(train: Run) -> None:
    config = {"rows_per_update": 64, "rows_per_micro_batch": 64, "trainer.compile": False}
    config |= {"packing.capacity": 16384}
    answer = train(config, mode="eager", settings={"gib": 1})
    assert answer.status != 0
    assert re.search(r"BrimfulError: out of memory at step 1: .*; set it to 32", answer.said)


def test_a_run_resumes_on_the_device(train: Run) -> None:
    """Killed after a checkpoint."""
    config = {"trainer.checkpoint_every": 6, "validation_tokens": 0}
    killed = train(config, dies=9)
    assert killed.status == 9
    again = train(resume=True)
    assert again.status == 0, again.said
    assert "resuming at step 6" in again.said
    assert [update["step"] for update in again.updates] == list(range(6, 12))


def test_without_a_c_compiler_training_goes_on_eagerly(train: Run, tmp_path: Path) -> None:
    """There is a program of that name, but it fails."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("gcc", "cc", "g++", "c++", "clang"):
        (broken / name).write_text("#!/bin/sh\nexit 1\n")
        (broken / name).chmod(0o755)
    variables = {
        "PATH": f"{broken}:/usr/bin:/bin",
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    answer = train(variables=variables)
    assert answer.status == 0, answer.said
    (line,) = [line for line in answer.said.splitlines() if "a step is not compiled" in line]
    assert "Traceback" not in answer.said
    assert len(line) < 320


@pytest.mark.parametrize(
    ("variables", "used"), [({}, 0), ({"LOCAL_RANK": "2"}, 2)], ids=["any", "told to use the third"]
)
def test_of_four_devices_a_process_uses_one(train: Run, variables, used) -> None:
    """Nothing is launched, copied or allocated on any other one."""
    config = {"trainer.compile": False, "trainer.steps": 6, "rows_per_update": 16}
    settings = {"gib": 4, "devices": 4}
    answer = train(config, mode="eager", variables=variables, settings=settings)
    assert answer.status == 0, answer.said
    assert {device for update in answer.updates for device in update["devices"]} == {used}
