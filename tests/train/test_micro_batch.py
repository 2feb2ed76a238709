"""How many rows micro-batches have, and the error where they do not fit in memory."""

from math import gcd
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.data.config import PackingConfig, Phase
from brimful.data.rows import list_sizes
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.objectives.masked_lm import MaskedLM
from brimful.train.metrics import read_metrics
from brimful.train.step_memory import MAX_HIDDEN_NUMBERS, choose_rows, choose_rows_on_cpu
from brimful.train.trainer import Trainer
from builders.training import row_trainer, toy_rows

PACKING = PackingConfig(max_length=32, capacity=64)
ROWS = [Phase(4, PackingConfig(max_length=16, capacity=64), 16), Phase(4, PACKING, 24)]
SEQUENCES = [Phase(8, PACKING, 30, "sequences")]


class Narrow(MaskedLM):
    """Has memory for so many micro-batches."""

    fitting = 1 << 30

    def loss(self, encoder, batch, layout=None):
        self.fitting -= 1
        if self.fitting < 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return super().loss(encoder, batch, layout)


def trainer_of(
    directory: Path, seed: int, micro: int, *, phases: list[Phase] = ROWS, fitting: int = 1 << 30, **config
) -> Trainer:
    trainer = row_trainer(directory, seed, phases, micro=micro, objective=Narrow, steps=8, **config)
    trainer.objective.fitting = fitting  # type: ignore[attr-defined]
    return trainer


def losses(directory: Path) -> list[float]:
    lines = [line for line in read_metrics(directory / "metrics.jsonl") if "loss.mlm" in line]
    assert [line["step"] for line in lines] == list(range(1, 9))
    return [line["loss.mlm"] for line in lines]


@pytest.mark.parametrize("phases", [ROWS, SEQUENCES], ids=["rows", "sequences"])
def test_a_run_without_memory_continues_with_the_size_that_it_names(
    seed: int, tmp_path: Path, phases: list[Phase]
) -> None:
    """With the losses of one whose micro-batches were so small from the start: 2e-5, as fp32 sums of the same
    numbers in another order go through eight updates at a large rate."""
    trainer = trainer_of(tmp_path / "a", seed, 4, phases=phases, fitting=20, checkpoint_every=1)
    with pytest.raises(
        BrimfulError, match=r"out of memory at step \d: rows_per_micro_batch is 4; set it to 2 \(to continue"
    ):
        trainer.run("test")
    assert 0 < trainer.progress.step < 8
    again = trainer_of(tmp_path / "a", seed, 2, phases=phases, checkpoint_every=1)
    assert again.resume()
    again.run("test")
    other = trainer_of(tmp_path / "b", seed, 2, phases=phases)
    other.run("test")
    assert losses(tmp_path / "a") == pytest.approx(losses(tmp_path / "b"), rel=2e-5)
    assert again.progress.totals.tokens == other.progress.totals.tokens


def test_one_row_is_the_least(seed: int, tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=r"step 1: micro-batches have one row; lower packing\.capacity"):
        trainer_of(tmp_path, seed, 1, fitting=0).run("test")


def test_other_errors_stay_what_they_are(seed: int, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, seed, 4)
    trainer.loss = Mock(side_effect=RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trainer.run("test")


def test_valid_sizes_divide_the_updates_of_every_phase() -> None:
    assert list_sizes(ROWS, 100) == [1, 2, 4, 8] == [n for n in range(1, 25) if gcd(16, 24) % n == 0]
    assert list_sizes(ROWS, 7) == [1, 2, 4]
    assert list_sizes(SEQUENCES, 30) == [1, 2, 4, 8, 16]
    assert list_sizes(SEQUENCES, 0) == list_sizes(ROWS, 0) == []


def auto(trainer: Trainer) -> int:
    def make() -> tuple[Encoder, MaskedLM]:
        encoder = Encoder(trainer.encoder.config)
        return encoder, MaskedLM(MaskedLMHead(encoder), {})

    return choose_rows(trainer.state, trainer.training, trainer.runtime, trainer.stream, make)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "most", "chosen"),
    [
        (1, 5, 4),
        (1, 1 << 20, 8),  # divides 16 and 24
        (2, 1 << 20, 4),  # with 8, a rank would compute 16 rows of 24
        (3, 1 << 20, 2),  # with 4, 8 of 16
        (1, 0, 1),
    ],
)
def test_on_a_cpu_a_micro_batch_has_as_many_rows_as_are_asked_of_it(
    seed: int, tmp_path: Path, ranks: int, most: int, chosen: int
) -> None:
    """So many that their hidden states have MAX_HIDDEN_NUMBERS numbers at most, without trying; at least
    one."""
    stream = toy_rows(tmp_path, seed, ROWS, ranks=ranks)
    width = MAX_HIDDEN_NUMBERS // (PACKING.capacity * max(1, most)) + (most == 0)
    assert choose_rows_on_cpu(stream, max(1, width)) == stream.rows_per_micro_batch == chosen  # type: ignore


def test_the_choice_leaves_no_trace(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """The trained bits are those of a run that was told the number."""
    trainer = trainer_of(tmp_path / "a", seed, 1)
    assert auto(trainer) == trainer.stream.rows_per_micro_batch == 8  # type: ignore[attr-defined]
    assert "rows_per_micro_batch 8: the most that fit" in capfd.readouterr().err
    trainer.run("test")
    other = trainer_of(tmp_path / "b", seed, 8)
    other.run("test")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_what_memory_is_left_decides(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_free(free: int) -> int:
        monkeypatch.setattr("brimful.train.step_memory.available_memory", lambda: free)
        return auto(trainer_of(tmp_path, seed, 1, phases=SEQUENCES))

    assert with_free(1 << 40) > with_free(13_000_000) >= 1
    with pytest.raises(BrimfulError, match="not even micro-batches of one row fit"):
        with_free(0)
