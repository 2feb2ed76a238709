"""Training in phases and by the clock: the rates the optimizer gets, what it trains, and when it ends."""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from brimful.base.distributed import World
from brimful.base.storage import read_json
from brimful.data import blocks as blocks_module
from brimful.data.config import PackingConfig, Phase
from brimful.data.loader import Update
from brimful.optim.schedule import Cycle, ScheduleConfig
from brimful.train import trainer as trainer_module
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime
from brimful.train.trainer import StepResult, Trainer
from builders.training import KilledError, assert_same_bits, kill_at, row_trainer, weights

SHORT, LONG = PackingConfig(max_length=16, capacity=64), PackingConfig(max_length=32, capacity=64)
PHASES = [Phase(6, SHORT, 3), Phase(6, LONG, 2)]
CYCLES = [Cycle(6), Cycle(6, 0.5, 2.0)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 3)


def trainer_of(directory: Path, seed: int, **config) -> Trainer:
    """In two phases, of sequences of at most 16 and 32 tokens."""
    schedule = ScheduleConfig(shape="polynomial", warmup=0.4)
    settings = {"steps": 12, "cycles": CYCLES, "schedule": schedule}
    return row_trainer(directory, seed, PHASES, **settings | config)


def rates(directory: Path) -> list[float]:
    return [line["learning_rate"] for line in read_metrics(directory / "metrics.jsonl") if "loss.mlm" in line]


def watch(trainer: Trainer, look: Callable[[Update], None]) -> None:
    make = trainer.train_step

    def and_look(update: Update) -> StepResult:
        result = make(update)
        look(update)
        return result

    trainer.train_step = and_look  # type: ignore[method-assign]


def test_each_phase_has_its_own_peak_and_warmup(seed: int, tmp_path: Path) -> None:
    trainer_of(tmp_path, seed).run("test")
    first = [1 / 2.4, 2 / 2.4, 1, *((left / 3.6) ** 0.5 for left in (3, 2, 1))]
    second = [1 / 2, 1, *((left / 4) ** 0.5 for left in (4, 3, 2, 1))]
    expected = [1e-2 * rate for rate in first] + [5e-3 * rate for rate in second]
    assert rates(tmp_path) == pytest.approx(expected, rel=1e-12)


def test_positions_beyond_the_first_phase_are_trained_in_the_second(seed: int, tmp_path: Path) -> None:
    """They exist from the start. Without weight decay AdamW leaves a row without a gradient as it is."""
    trainer = trainer_of(tmp_path, seed, weight_decay=0.0)
    assert trainer.encoder.position is not None
    positions = trainer.encoder.position.weight
    states = [positions.detach().clone()]
    watch(trainer, lambda update: states.append(positions.detach().clone()))
    trainer.run("test")
    moved_first, moved_second = states[6] != states[0], states[12] != states[6]
    assert moved_first[:8].any(1).all()
    assert not moved_first[16:].any()
    assert moved_second[:24].any(1).all()


# The clock


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
    """Let these seconds pass in training updates, and a million between two updates."""
    clock, passing = SimpleNamespace(now=0.0), itertools.cycle(seconds)
    clock.perf_counter = lambda: clock.now
    step, between = Trainer.train_step, Trainer._between_updates

    def timed_step(self: Trainer, update: Update) -> StepResult:
        clock.now += next(passing)
        return step(self, update)

    def later(self: Trainer, last: bool, stop: bool) -> None:
        clock.now += 1e6
        between(self, last, stop)

    monkeypatch.setattr(trainer_module, "time", clock)
    monkeypatch.setattr(Trainer, "train_step", timed_step)
    monkeypatch.setattr(Trainer, "_between_updates", later)


LINEAR = ScheduleConfig(warmup=0.2)


def timed(directory: Path, seed: int, **config) -> Trainer:
    """A trainer that has a minute for at most 10,000 updates."""
    return trainer_of(directory, seed, schedule=LINEAR, cycles=[], hours=1 / 60, steps=10_000, **config)


def test_a_run_of_so_many_hours_ends_by_the_clock(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 seconds; what passes between updates, a million seconds each time, does not count."""
    set_clock(monkeypatch, [3.0, 9.0, 4.0, 8.0, 12.0, 10.0, 11.0, 5.0])
    trainer = timed(tmp_path, seed, checkpoint_every=1000)
    trainer.run("test")
    begun = [0, 3, 12, 16, 24, 36, 46, 57]
    expected = [1 / 2000, 3 / 12, 12 / 12, *((60 - seconds) / 48 for seconds in begun[3:])]
    assert rates(tmp_path) == pytest.approx([1e-2 * rate for rate in expected])
    assert trainer.progress.step == 8
    state = read_json(tmp_path / "checkpoints" / "step-8" / "checkpoint.json")["state"]
    assert state["totals"]["seconds"] == pytest.approx(62)


def test_its_rates_go_on_where_it_was_killed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same speed gives the same bits; what was done after the checkpoint does not count twice."""

    set_clock(monkeypatch, [7.0])
    whole = timed(tmp_path / "whole", seed)
    whole.run("test")
    set_clock(monkeypatch, [7.0])
    with pytest.raises(KilledError):
        kill_at(5, timed(tmp_path / "killed", seed, checkpoint_every=2)).run("test")
    set_clock(monkeypatch, [7.0])
    resumed = timed(tmp_path / "killed", seed, checkpoint_every=2)
    assert resumed.resume()
    assert (resumed.progress.step, resumed.progress.totals.seconds) == (4, 28)
    resumed.run("test")
    assert resumed.progress.step == whole.progress.step == 9
    assert rates(tmp_path / "killed") == rates(tmp_path / "whole")
    assert_same_bits(weights(resumed), weights(whole))
    again = timed(tmp_path / "killed", seed, checkpoint_every=2)
    assert again.resume()
    again.run("test")
    assert again.progress.step == 9


def check_clock(ranks: World, directory: Path) -> None:
    """All ranks go by the clock of the main one: tests/train/test_ranks.py calls this."""
    with pytest.MonkeyPatch.context() as patch:
        set_clock(patch, [7.0] if ranks.is_main else [1.0])
        trainer = timed(directory / str(ranks.rank), 5, runtime=Runtime(ranks, "fp32"))
        factors: list[float] = []
        watch(trainer, lambda update: factors.append(trainer.state.learning_rate))
        trainer.run("test")
    assert (trainer.progress.step, trainer.progress.totals.seconds) == (9, 63.0)
    begun = range(0, 63, 7)
    assert factors == pytest.approx(
        [1e-2 * rate for rate in [1 / 2000, 7 / 12]] + [1e-2 * (60 - s) / 48 for s in begun[2:]]
    )
