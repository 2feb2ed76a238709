"""The two sides of bench/train: Brimful's Trainer, and a plain loop over the same model and batches."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from tokenizers import Tokenizer
from torch import Tensor, nn

from bench.common.random_corpus import make_corpus
from bench.common.workload import VOCABULARY
from brimful import console
from brimful.corpus.shards import Corpus
from brimful.data.batch import PackedBatch
from brimful.data.loader import Stream
from brimful.data.mixture import DataSource
from brimful.data.reader import SequenceReader
from brimful.distributed import World
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import preset
from brimful.objectives.losses import count
from brimful.objectives.masked_lm import MaskedLM
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.pretraining.config import PretrainConfig
from brimful.pretraining.plan import make_sources
from brimful.pretraining.work import make_stream
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from brimful.train.trainer import Trainer
from brimful.types import Cursor

MEAN_DOCUMENT = 340  # tokens; about 250 of a sequence at 512
OPTIMIZER = OptimizerConfig()


@dataclass(frozen=True)
class Job:
    """What is trained.

    Attributes:
        model: a preset of the architecture modern; or "bare", tiny with next to no width, whose products take
            next to no time.
        rows: of 512 slots in an update of one rank, each a micro-batch.
        updates: of a turn.
        tokens: of the corpus.
    """

    model: str
    rows: int
    updates: int
    tokens: int


@dataclass(frozen=True)
class Variant:
    """How the Trainer runs.

    Attributes:
        stream: whether its batches come from the corpus, or were made beforehand too.
        bar: whether progress is drawn, as on a terminal.
        config: what differs from its defaults.
    """

    stream: bool = False
    bar: bool = False
    config: dict[str, Any] = field(default_factory=lambda: {"prefetch": 0})


class Beforehand:
    """A stream of updates that were made before."""

    def __init__(self, updates: list[list[PackedBatch]]) -> None:
        self.updates = updates

    def start(self) -> Cursor:
        return {"update": 0}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        return self.updates[cursor["update"]], {"update": cursor["update"] + 1}

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        return {}


class Model:
    """An encoder and its masked-LM head, the same weights each time."""

    def __init__(self, job: Job) -> None:
        torch.manual_seed(0)
        shape = preset(
            "tiny" if job.model == "bare" else job.model, vocabulary_size=VOCABULARY, max_length=512
        )
        if job.model == "bare":
            shape = replace(shape, hidden_size=8, heads=1, intermediate_size=8)
        self.encoder = Encoder(shape)
        self.head = MaskedLMHead(self.encoder)
        self.objective = MaskedLM(self.head, {})
        self.modules = nn.ModuleDict({"encoder": self.encoder, "head": self.head})

    def weights(self) -> list[Tensor]:
        """Of all parameters."""
        return [parameter.detach() for parameter in self.modules.parameters()]


def open_stream(job: Job, folder: Path, world: World) -> Stream:
    """What `brimful pretrain` reads: a corpus of random tokens, which one rank has written."""
    corpus = Corpus.open(folder / "corpus")
    reader = SequenceReader(Tokenizer.from_file(str(corpus.tokenizer_path)), PretrainConfig().masking)
    data = (DataSource(path=str(folder / "corpus"), name="random"),)
    config = PretrainConfig(data=data, rows_per_update=job.rows * world.size)
    sources = make_sources(config, {"random": corpus}, folder / "blocks", ahead=world.is_main)
    return make_stream(config, sources, reader, rank=world.rank, world=world.size)


def write_corpus(job: Job, folder: Path) -> None:
    """What `open_stream` reads."""
    make_corpus(folder / "corpus", job.tokens, MEAN_DOCUMENT)


def made_beforehand(stream: Stream, updates: int) -> Beforehand:
    """The stream's first updates."""
    cursor, made = stream.start(), []
    for _ in range(updates):
        batches, cursor = stream.take(cursor)
        made.append(batches)
    return Beforehand(made)


def plain_loop(model: Model, updates: list[list[PackedBatch]]) -> Callable[[], None]:
    """The loop that anyone would write: nothing is logged, checked, saved or scheduled."""
    encoder, objective, parameters = model.encoder, model.objective, list(model.modules.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": OPTIMIZER.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (OPTIMIZER.beta1, OPTIMIZER.beta2)
    optimizer = torch.optim.AdamW(
        groups, lr=OPTIMIZER.learning_rate, betas=betas, eps=OPTIMIZER.epsilon, fused=True
    )

    def run() -> None:
        model.modules.train()
        for batches in updates:
            predictions = sum(count(batch.mlm_labels) for batch in batches if batch.mlm_labels is not None)
            for batch in batches:
                loss = objective.loss(encoder, batch)["mlm"] / predictions
                loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return run


def trainer_of(
    model: Model, stream: Stream, updates: int, folder: Path, world: World, config: dict[str, Any]
) -> Trainer:
    """Brimful's loop, with a constant rate like the plain loop."""
    return Trainer(
        model.encoder,
        model.objective,
        stream,
        Runtime(world, "fp32"),
        folder,
        config=replace(TrainerConfig(steps=updates, evaluate_every=0), **config),
        optimizer=OPTIMIZER,
        schedule=ScheduleConfig(shape="constant", warmup=0),
        seed=0,
    )


@contextmanager
def drawn_progress() -> Iterator[None]:
    """Within it progress is a bar, as on a terminal, which nobody sees."""
    before = console.console
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console.console = Console(file=nowhere, force_terminal=True, width=120)
        try:
            yield
        finally:
            console.console = before


def taken(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a call by the clock on the wall, and of CPU time of all threads."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
