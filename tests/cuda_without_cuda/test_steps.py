"""A training step on a CUDA device that records: nobody waits, allocates, captures or compiles in between.

Numbers mean nothing there (kernels do not run), so numerics and speed are not tested.
"""

from typing import Any

import pytest
from cuda_without_cuda.conftest import Answer, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PREPARED_AHEAD = 2
"""Blocks of memory that the thread which prepares batches may still take when it gets further ahead."""

FEW_BYTES = 1024
"""A copy to the device of so few bytes may be in the default stream: keys of stochastic rounding."""


def disturbances(answer: Answer, **which: Any) -> dict[str, list[Any]]:
    """What updates beyond the second do besides launching, replaying and copying ahead: kind -> cases."""
    found: dict[str, list[Any]] = {}
    updates = answer.steady(**which)
    assert len(updates) >= 4

    def note(kind: str, *case: Any) -> None:
        found.setdefault(kind, []).append(case)

    for update in updates:
        number = update["step"] + 1
        for kind in ("sync", "allocate", "free", "begin_capture"):
            if count := update["counts"].get(kind):
                note(kind, number, count, update["syncs"])
        for copy in update["copies"]:
            if copy["to"] == "h2d" and copy["pageable"]:
                note("pageable copy", number, copy)
            if copy["to"] == "h2d" and copy["stream"] == "(nil)" and copy["bytes"] > FEW_BYTES:
                note("copy in the default stream", number, copy)
        if update["beside"]["prefetch"].get("sync"):
            note("sync of the loader", number)
        if update["strides"]:
            note("stride", number, update["strides"])
    ahead = sum(update["beside"]["prefetch"].get("allocate", 0) for update in updates)
    if ahead > PREPARED_AHEAD:
        note("allocations of the loader", ahead)
    for update in answer.updates:
        if update["violations"]:
            note("violation", update["step"] + 1, update["violations"])
    compiled = {update["step"]: update["graphs_compiled"] for update in answer.updates}
    for update in updates:
        if compiled[update["step"]] > compiled[update["step"] - 1]:
            note("recompilation", update["step"] + 1)
    if skips := answer.values["cudagraph_skips"]:
        note("skip of CUDA graphs", skips)
    return found


def assert_steady(answer: Answer, **which: Any) -> None:
    """After the second update, an update launches, replays and copies ahead, and does nothing else."""
    assert answer.status == 0, answer.said
    assert "is not compiled" not in answer.said
    assert disturbances(answer, **which) == {}


@pytest.mark.parametrize("mode", ["eager", "compiled", "graphs"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("backend", ["varlen", "flex"])
def test_steps_are_steady(train: Run, backend: str, precision: str, mode: str) -> None:
    config = {"precision": precision, "trainer.compile": mode != "eager"}
    answer = train(config, backend=backend, mode=mode)
    assert_steady(answer)
    replays = [update["counts"].get("graph", 0) for update in answer.steady()]
    assert replays == [4 * (mode == "graphs")] * len(replays)  # forward and backward of two micro-batches


@pytest.mark.parametrize("capability", [75, 86])
def test_older_devices_choose_what_they_can(train: Run, capability: int) -> None:
    """A T4 takes fp16 and flex by itself, an A10 bf16 and varlen."""
    answer = train(settings={"capability": capability, "gib": 15})
    assert_steady(answer)
    assert answer.values["summary"]["precision"] == {75: "fp16", 86: "bf16"}[capability]


SETTINGS: dict[str, dict[str, Any]] = {
    "muon": {"optimizer.name": "muon"},
    "lamb": {"optimizer.name": "lamb"},
    "16-bit weights": {"trainer.weights": "bf16"},
    "float32 residual": {"trainer.residual": "fp32"},
    "one micro-batch": {"rows_per_micro_batch": 8},
    "pairs": {"sequences.kind": "nsp", "architecture": "bert"},
    "dropout": {"model.dropout": 0.1, "architecture": "prenorm"},
    "a loss by sequence": {"loss_mean": "sequences"},
    "deterministic": {"trainer.deterministic": True},
    "local attention": {"model": "base", "model.layers": 4, "model.hidden_size": 128, "model.heads": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_steady(train: Run, name: str) -> None:
    config = {key.replace("model.", "shape."): value for key, value in SETTINGS[name].items()}
    assert_steady(train(config))


def test_a_phase_of_another_length_is_steady_after_two_updates(train: Run) -> None:
    """A new length begins with a block of data, within the phase. With it the shapes change, and once more
    when its first block is open: then S follows what that block needs."""
    phases = [{"steps": 8, "max_length": 64}, {"steps": 16, "max_length": 128}]
    answer = train({"phases": phases, "trainer.steps": 24, "trainer.log_every": 1000})
    compiled = [update["graphs_compiled"] for update in answer.updates]
    changes = [step for step in range(1, 24) if compiled[step] > compiled[step - 1]]
    assert 1 <= len(changes) <= 2
    assert changes[0] >= 8
    assert_steady(answer, log_every=1000, but=(24, *(step + n for step in changes for n in (1, 2))))


@pytest.mark.parametrize("mode", ["eager", "graphs"])
@pytest.mark.parametrize("where", ["item", "item in backward"])
def test_a_value_that_is_read_in_a_step_is_noticed(train: Run, where: str, mode: str) -> None:
    """In backward too, which autograd runs in a thread of its own."""
    answer = train({"trainer.compile": mode == "graphs"}, mode=mode, sabotage=where)
    assert answer.status == 0, answer.said
    found = disturbances(answer)
    assert set(found) == {"sync"}, found
    assert [number for number, *_ in found["sync"]] == [u["step"] + 1 for u in answer.steady()]
    assert all(any("scenario.py" in stack for stack in stacks) for *_, stacks in found["sync"])
