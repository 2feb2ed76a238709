"""A training step on a CUDA device that records: nobody waits, allocates, captures or compiles in between.

Numbers mean nothing there (kernels do not run), so numerics and speed are not tested.
"""

from typing import Any

import pytest
from cuda_without_cuda.conftest import Answer, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PREPARED_AHEAD = 2
"""Blocks of memory that the thread which prepares batches may still take when it gets further ahead."""


def assert_steady(answer: Answer, **which: Any) -> None:
    """After the second update, an update launches, replays and copies ahead, and does nothing else."""
    assert answer.status == 0, answer.said
    assert "is not compiled" not in answer.said
    updates = answer.steady(**which)
    assert len(updates) >= 4
    for update in updates:
        for kind in ("sync", "allocate", "free", "begin_capture", "violation"):
            assert not update["counts"].get(kind), (update["step"] + 1, kind, update["syncs"])
        pageable = [copy for copy in update["copies"] if copy["to"] == "h2d" and copy["pageable"]]
        assert not pageable, (update["step"] + 1, pageable)
        default = [copy for copy in update["copies"] if copy["to"] == "h2d" and copy["stream"] == "(nil)"]
        assert not default, (update["step"] + 1, default)
    beside = sum(update["beside"].get("allocate", 0) for update in updates)
    assert beside <= PREPARED_AHEAD
    assert not any(update["violations"] for update in answer.updates)
    assert len({update["graphs_compiled"] for update in updates}) == 1
    assert answer.values["cudagraph_skips"] == 0


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
    "average": {"optimizer.ema": 0.99},
    "16-bit weights": {"trainer.weights": "bf16"},
    "16-bit weights in fp16": {"trainer.weights": "fp16"},
    "residual": {"trainer.residual": "bf16"},
    "one micro-batch": {"rows_per_micro_batch": 8},
    "four micro-batches": {"rows_per_micro_batch": 2},
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
    phases = [{"steps": 8, "max_length": 64}, {"steps": 12, "max_length": 128}]
    answer = train({"phases": phases, "trainer.steps": 20, "trainer.log_every": 1000})
    assert_steady(answer, log_every=1000, but=(9, 10, 20))
    lengths = {update["graphs_compiled"] for update in answer.updates[:8]}
    assert len(lengths) == 1


@pytest.mark.parametrize("mode", ["eager", "graphs"])
def test_a_value_that_is_read_in_a_step_is_noticed(train: Run, mode: str) -> None:
    answer = train({"trainer.compile": mode == "graphs"}, mode=mode, sabotage="item")
    assert all(update["counts"]["sync"] for update in answer.steady())
    assert any("scenario.py" in stack for update in answer.steady() for stack in update["syncs"])
    with pytest.raises(AssertionError):
        assert_steady(answer)


def test_a_shape_that_changes_is_noticed(train: Run) -> None:
    answer = train({"rows_per_micro_batch": 8}, sabotage="recompile")
    compiled = [update["graphs_compiled"] for update in answer.updates]
    assert compiled[-1] > compiled[0]
    with pytest.raises(AssertionError):
        assert_steady(answer)
