"""A masked-LM run whose micro-batches, and so whose ranks, differ much: in number, tokens and predictions."""

from pathlib import Path

import numpy as np
import torch

from brimful.base.distributed import World
from brimful.base.types import Cursor, Precision
from brimful.data.batch import PackedBatch, make_blank
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.presets import preset
from brimful.objectives.masked_lm import MaskedLM
from brimful.optim.config import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.train.config import TrainerConfig
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime
from brimful.train.trainer import Trainer
from brimful.train.training import Training

VOCABULARY, LONGEST, SLOTS = 90, 24, 64
ALONE = World(0, 1, torch.device("cpu"))


def batch_of(seed: int, *key: int) -> PackedBatch:
    """One to five sequences; every second batch has a single prediction, the others have half of the
    tokens."""
    draw = np.random.default_rng([seed, *key])
    few = key[-1] % 2
    lengths = draw.integers(4, LONGEST, 1 + few if few else draw.integers(2, 4)).tolist()
    batch = make_blank(lengths, max_length=LONGEST, pad=0, slots=SLOTS + 16)
    real = batch.real_tokens
    batch.tokens[:real] = torch.from_numpy(draw.integers(1, VOCABULARY, real).astype(np.int32))
    places = draw.permutation(real)[: 1 if few else real // 2]
    positions, labels = np.zeros(SLOTS, np.int64), np.full(SLOTS, -100, np.int64)
    positions[: len(places)] = np.sort(places)
    labels[: len(places)] = draw.integers(1, VOCABULARY, len(places))
    changed = {"mlm_positions": torch.from_numpy(positions), "mlm_labels": torch.from_numpy(labels)}
    return PackedBatch(**vars(batch) | changed | {"predictions": len(places)})


class Uneven:
    """Updates of one to five micro-batches, dealt to the ranks in turn: with several ranks some have none."""

    def __init__(self, seed: int, world: World) -> None:
        self.seed, self.world = seed, world

    def start(self) -> Cursor:
        return {"update": 0}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        update = cursor["update"]
        count = 1 + (3 * update + self.seed) % 5
        mine = range(count)[self.world.rank :: self.world.size]
        return [batch_of(self.seed, update, index) for index in mine], {"update": update + 1}

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        return {}


def uneven_trainer(
    directory: Path,
    seed: int,
    world: World = ALONE,
    *,
    precision: Precision = "fp32",
    optimizer: dict[str, float | str] | None = None,
    dropout: float = 0.0,
    **config: float | str,
) -> Trainer:
    """Of a small ModernBERT, whose data and initial weights depend on `seed` alone. Its fused matrices and
    its number of vocabulary rows do not divide evenly among ranks."""
    torch.manual_seed(seed)
    shape = {"vocabulary_size": VOCABULARY, "max_length": LONGEST, "hidden_size": 24, "heads": 2, "layers": 3}
    encoder = Encoder(preset("tiny", "modern", intermediate_size=20, dropout=dropout, **shape))
    held_out = [batch_of(seed + 1, index) for index in range(3)]
    settings = {"learning_rate": 3e-3, "muon_learning_rate": 0.01} | (optimizer or {})
    return Trainer(
        encoder,
        MaskedLM(MaskedLMHead(encoder), {"toy": held_out}),
        Uneven(seed, world),
        Runtime(world, precision),
        directory,
        Training(
            config=TrainerConfig(**{"steps": 20, "log_every": 1} | config),  # type: ignore[arg-type]
            optimizer=OptimizerConfig(**settings),  # type: ignore[arg-type]
            schedule=ScheduleConfig(),
            seed=seed,
        ),
    )


def curve(directory: Path) -> list[float]:
    """The losses and gradient norms of a run's updates, and its evaluations."""
    names = ("loss.mlm", "gradient_norm", "validation.loss")
    return [
        line[name] for line in read_metrics(directory / "metrics.jsonl") for name in names if name in line
    ]


class NotANumberOnce:
    """A trainer's loss that is NaN on the main rank in one update, the first time."""

    def __init__(self, trainer: Trainer, step: int) -> None:
        self.trainer, self.step, self.loss = trainer, step, trainer.loss

    def __call__(self, batch: PackedBatch) -> dict[str, torch.Tensor]:
        sums = self.loss(batch)
        if self.trainer.progress.step == self.step and self.trainer.runtime.world.is_main:
            self.step = -1
            return {name: value * torch.nan for name, value in sums.items()}
        return sums
