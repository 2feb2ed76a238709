"""Small trainers on made-up examples, and what two of them must have in common."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from brimful.base.distributed import World
from brimful.corpus.shards import Corpus
from brimful.data.config import Phase
from brimful.data.example_stream import ExampleStream
from brimful.data.examples import Examples
from brimful.data.rows import RowStream
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, SequenceHead
from brimful.model.presets import preset
from brimful.model.shape import EncoderConfig
from brimful.objectives.masked_lm import MaskedLM
from brimful.objectives.supervised import Supervised
from brimful.optim.config import OptimizerConfig
from brimful.optim.schedule import Cycle, ScheduleConfig
from brimful.tasks.classification import Classification
from brimful.tasks.task_data import make_evaluation
from brimful.train.config import TrainerConfig
from brimful.train.metrics import read_metrics
from brimful.train.objective import Objective, Runtime
from brimful.train.trainer import Trainer
from brimful.train.training import Training
from builders.streams import ORDINARY, SPECIAL, toy_corpus, toy_stream
from builders.tables import encoded

TASK = Classification(["0", "1"])
ALONE = World(0, 1, torch.device("cpu"))
RUNTIME, BF16, FP16 = Runtime(ALONE, "fp32"), Runtime(ALONE, "bf16"), Runtime(ALONE, "fp16")
VOCABULARY, MAX_LENGTH = 60, 20


def examples_of(count: int, seed: int) -> Examples:
    """Random sequences of two classes: those of class 1 hold tokens from the upper half of the vocabulary."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    half = VOCABULARY // 2
    lengths = random.integers(2, MAX_LENGTH + 1, count)
    tokens = [
        random.integers(0, half, length) + half * label for length, label in zip(lengths, labels, strict=True)
    ]
    segments = [np.zeros(length, np.uint8) for length in lengths]
    tokens = [ids.astype(np.int32) for ids in tokens]
    return Examples(tokens, segments, {"label": labels}, MAX_LENGTH, 0)


def encoder_of(dropout: float = 0.0, layers: int = 2) -> Encoder:
    """A small encoder whose weights torch's generator decides."""
    shape = {"hidden_size": 32, "layers": layers, "heads": 2, "intermediate_size": 32}
    config = EncoderConfig(vocabulary_size=VOCABULARY, max_length=MAX_LENGTH, dropout=dropout, **shape)
    return Encoder(config)


def supervised(
    head: SequenceHead, held_out: Examples | None, kind: type[Supervised] = Supervised
) -> Supervised:
    """The objective of a classifier that is measured on `held_out`."""
    return kind(TASK, head, make_evaluation(TASK, head, None if held_out is None else encoded(held_out)))


def trainer_of(
    directory: Path,
    seed: int,
    *,
    dropout: float = 0.0,
    tokens: int = 64,
    batch: int = 8,
    optimizer: str = "adamw",
    objective: Callable[[SequenceHead], Objective] | None = None,
    held_out: Examples | None = None,
    trainer_seed: int = 1,
    runtime: Runtime = RUNTIME,
    rate: float = 3e-3,
    fixed_shapes: bool = False,
    **config,
) -> Trainer:
    """A trainer of a small classifier: its data and initial weights depend on `seed` alone."""
    torch.manual_seed(seed)
    encoder = encoder_of(dropout)
    head = SequenceHead(encoder, 2)
    sizes = {"sequences": batch, "tokens": tokens, "fixed_shapes": fixed_shapes}
    stream = ExampleStream(examples_of(50, seed), seed=seed, **sizes)
    objective = objective(head) if objective else supervised(head, held_out)
    training = Training(
        config=TrainerConfig(**{"steps": 12, "log_every": 4} | config),
        optimizer=OptimizerConfig(name=optimizer, learning_rate=rate, muon_learning_rate=6 * rate),
        schedule=ScheduleConfig(),
        seed=trainer_seed,
    )
    return Trainer(encoder, objective, stream, runtime, directory, training)


def toy_rows(
    directory: Path, seed: int, phases: Sequence[Phase], micro: int = 1, ranks: int = 1
) -> RowStream:
    folder = directory / "corpus"
    corpus = Corpus.open(folder) if folder.exists() else toy_corpus(folder, [40] * 60, seed)
    corpora, blocks = {"toy": (corpus, 1.0)}, directory / "blocks"
    return toy_stream(corpora, phases, blocks, seed, micro=micro, rank=0, world=ranks)


def row_trainer(
    directory: Path,
    seed: int,
    phases: Sequence[Phase],
    *,
    micro: int = 1,
    objective: type[MaskedLM] = MaskedLM,
    runtime: Runtime = RUNTIME,
    schedule: ScheduleConfig | None = None,
    cycles: Sequence[Cycle] = (),
    weight_decay: float = 0.1,
    **config,
) -> Trainer:
    """A trainer of a small BERT without dropout on `toy_rows`."""
    torch.manual_seed(seed)
    shape = preset("tiny", "bert", vocabulary_size=len(SPECIAL) + ORDINARY, max_length=32)
    encoder = Encoder(replace(shape, hidden_size=16, heads=2, intermediate_size=16, dropout=0.0))
    parts = {"schedule": schedule or ScheduleConfig(), "cycles": cycles, "seed": seed}
    parts["optimizer"] = OptimizerConfig(learning_rate=1e-2, weight_decay=weight_decay)
    training = Training(config=TrainerConfig(**{"log_every": 1} | config), **parts)
    stream = toy_rows(directory, seed, phases, micro=micro)
    return Trainer(encoder, objective(MaskedLMHead(encoder), {}), stream, runtime, directory, training)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.state.trained.named_parameters()}


def assert_same_bits(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


class KilledError(Exception):
    """The end of a trainer that `kill_at` has prepared."""


def kill_at(step: int, trainer: Trainer) -> Trainer:
    """Let it die where it would begin update `step`, counted from 0."""
    update = trainer.train_step

    def until_killed(*arguments):
        if trainer.progress.step == step:
            raise KilledError
        return update(*arguments)

    trainer.train_step = until_killed
    return trainer


def killed_and_resumed(make: Callable[[], Trainer]) -> Trainer:
    """A trainer that dies after 7 updates, and then, with other weights, goes on to the end."""
    with pytest.raises(KilledError):
        kill_at(7, make()).run("test")
    resumed = make()
    with torch.no_grad():
        for parameter in resumed.state.trained.parameters():
            parameter.zero_()
    assert resumed.resume()
    assert 0 < resumed.progress.step <= 7
    resumed.run("test")
    return resumed


TIMES = ("seconds", "tokens_per_second", "data_wait")


def lines(directory: Path) -> list[dict]:
    """Metrics without what the clock decides."""
    found = read_metrics(directory / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in TIMES} for line in found]
