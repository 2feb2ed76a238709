"""How many rows micro-batches have, and the error where they do not fit in memory."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path

import pytest
import torch
from torch import nn

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.base.resources import available_memory
from brimful.corpus.shards import Corpus
from brimful.data.config import PackingConfig, Phase
from brimful.data.rows import RowStream, list_sizes
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import preset
from brimful.objectives.masked_lm import MaskedLM
from brimful.optim.config import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.runs.folder import RunFolder
from brimful.stages.pretrain import resolve_pretraining
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train.config import TrainerConfig
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime
from brimful.train.step_memory import MAX_HIDDEN_NUMBERS, HeldBytes, choose_rows, choose_rows_on_cpu
from brimful.train.trainer import Trainer
from brimful.train.training import Training
from builders.streams import ORDINARY, SPECIAL, toy_corpus, toy_stream

ROOT = Path(__file__).parents[2]
RUNTIME = Runtime(World(0, 1, torch.device("cpu")), "fp32")
PACKING = PackingConfig(max_length=32, capacity=64)
ROWS = [Phase(4, PackingConfig(max_length=16, capacity=64), 16), Phase(4, PACKING, 24)]
SEQUENCES = [Phase(8, PACKING, 30, "sequences")]


class Narrow(MaskedLM):
    """Runs out of memory from an update on, where a micro-batch has more than so many rows."""

    rows = 1 << 30
    begins = 0
    made: list[int]

    def loss(self, encoder, batch, layout=None):
        found = super().loss(encoder, batch, layout)
        rows = batch.tokens.numel() // PACKING.capacity
        self.made.append(rows)
        if rows > self.rows and len(self.made) > self.begins:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return found


def stream_of(
    directory: Path,
    seed: int,
    micro: int,
    phases: Sequence[Phase] = ROWS,
    *,
    world: World = RUNTIME.world,
) -> RowStream:
    folder = directory / "corpus"
    corpus = Corpus.open(folder) if folder.exists() else toy_corpus(folder, [40] * 60, seed)
    return toy_stream(
        {"toy": (corpus, 1.0)},
        phases,
        directory / "blocks",
        seed,
        micro=micro,
        rank=world.rank,
        world=world.size,
    )


def trainer_of(
    directory: Path,
    seed: int,
    micro: int,
    *,
    phases: Sequence[Phase] = ROWS,
    rows: int = 1 << 30,
    begins: int = 0,
    runtime: Runtime = RUNTIME,
    **config: float | str,
) -> Trainer:
    """Of a small BERT without dropout. `Narrow` has no memory above `rows`, after `begins` micro-batches."""
    torch.manual_seed(seed)
    shape = preset("tiny", "bert", vocabulary_size=len(SPECIAL) + ORDINARY, max_length=PACKING.max_length)
    encoder = Encoder(replace(shape, hidden_size=16, heads=2, intermediate_size=16, dropout=0.0))
    world = runtime.world
    stream = stream_of(directory, seed, micro, phases, world=world)
    objective = Narrow(MaskedLMHead(encoder), {})
    objective.rows, objective.begins, objective.made = rows, begins, []
    return Trainer(
        encoder,
        objective,
        stream,
        runtime,
        directory,
        Training(
            config=TrainerConfig(**{"steps": 8, "log_every": 1} | config),  # type: ignore[arg-type]
            optimizer=OptimizerConfig(learning_rate=1e-2),
            schedule=ScheduleConfig(),
            seed=seed,
        ),
    )


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
    trainer = trainer_of(tmp_path / "a", seed, 4, phases=phases, rows=2, begins=20, checkpoint_every=1)
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
        trainer_of(tmp_path, seed, 1, rows=0).run("test")


def test_other_errors_stay_what_they_are(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path, seed, 4)

    def broken(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(trainer, "loss", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trainer.run("test")


# Which size


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
    stream = stream_of(tmp_path, seed, 1, world=World(0, ranks, torch.device("cpu")))
    width = MAX_HIDDEN_NUMBERS // (PACKING.capacity * max(1, most)) + (most == 0)
    assert choose_rows_on_cpu(stream, max(1, width)) == stream.rows_per_micro_batch == chosen  # type: ignore


def test_on_a_cpu_the_last_micro_batch_of_an_update_of_sequences_is_nearly_full(
    seed: int, tmp_path: Path
) -> None:
    stream = trainer_of(tmp_path, seed, 1, phases=SEQUENCES).stream
    assert isinstance(stream, RowStream)
    rows = len(stream.micro_batches(stream.start())[0])
    chosen = choose_rows_on_cpu(stream, 1)
    best = [size for size in (1, 2, 4, 8, 16) if size <= rows and -rows // size * -size <= 1.125 * rows]
    assert chosen == best[-1]


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


@pytest.mark.parametrize(
    ("config", "precision", "expected"),
    [
        ({}, "bf16", 8),
        ({}, "fp16", 12),
        ({"weights": "bf16"}, "bf16", 10),
        ({"weights": "bf16", "rounding": "master"}, "bf16", 14),
        ({"weights": "fp16", "rounding": "kahan"}, "fp16", 12),
    ],
)
def test_bytes_that_a_run_will_yet_hold_for_each_number(config, precision, expected) -> None:
    """Beside itself and its gradient: moments, rounding, running mean."""
    held = HeldBytes.of([nn.Linear(7, 3)], OptimizerConfig(), TrainerConfig(**config), precision)
    assert held.later == 24 * expected


def test_memory_that_is_left(tmp_path: Path) -> None:
    """Of the machine, or of a control group and those around it; page cache counts as left."""

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert 0 < available_memory(tmp_path) < 1 << 50  # a machine that does not tell
    write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1500 kB\nHugePages_Total: 0\n")
    assert available_memory(tmp_path) == 1500 << 10
    write("proc/self/cgroup", "0::/job/step\n")
    for group, limit, used in (("job", "1000000", 600_000), ("job/step", "max", 0)):
        write(f"sys/fs/cgroup/{group}/memory.max", f"{limit}\n")
        write(f"sys/fs/cgroup/{group}/memory.current", f"{used}\n")
        write(f"sys/fs/cgroup/{group}/memory.stat", "anon 5\ninactive_file 50000\nactive_file 40000\n")
    assert available_memory(tmp_path) == 490_000


@pytest.mark.parametrize(
    ("given", "device", "expected"),
    [(None, "cpu", None), (None, "cuda", "auto"), ("auto", "cpu", "auto"), (2, "cuda", 2)],
)
def test_the_size_is_tried_on_a_gpu_unless_it_is_given(tmp_path: Path, given, device, expected) -> None:
    config = PretrainConfig(
        data="data", out=str(tmp_path / "run"), precision="fp32", rows_per_micro_batch=given
    )
    folder = RunFolder(tmp_path, World(0, 1, torch.device(device)))
    assert resolve_pretraining(config, folder).rows_per_micro_batch == expected
