"""The one way in which fine-tuning and distillation train: a stage of a run, on texts that are given.

Each has its encoder, its loss and its texts. How often they are read, in what updates, and what is left for a
resume is decided here alike.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import nn

from brimful.data.examples import Examples
from brimful.data.loader import Stream
from brimful.model.encoder import Encoder
from brimful.optim.schedule import ScheduleConfig
from brimful.runs.folder import Result, RunFolder
from brimful.stages.task_options import TrainingOptions
from brimful.tasks.data import example_stream
from brimful.train.objective import Objective, Runtime
from brimful.train.trainer import Trainer
from brimful.train.training import Training


class OpenStream(Stream, Protocol):
    """A stream that holds files or threads."""

    def close(self) -> None: ...


class StreamedTexts(Protocol):
    """Texts that are no examples, such as prepared shards."""

    def __len__(self) -> int: ...
    def stream(self, runtime: Runtime) -> OpenStream: ...


@dataclass(frozen=True)
class Stage:
    """One training of a run.

    Attributes:
        title: of the progress bar.
        folder: of its metrics, its checkpoints and its result, in the run.
        epochs: passes over the texts.
        rate: the peak learning rate.
        trained: the modules whose weights it leaves, by name.
    """

    title: str
    folder: Path
    seed: int
    encoder: Encoder
    objective: Objective
    texts: Examples | StreamedTexts
    epochs: float
    rate: float
    trained: Mapping[str, nn.Module]


def train_stage(stage: Stage, options: TrainingOptions, run: RunFolder, runtime: Runtime) -> Result:
    """Train a stage to its end. A finished stage is not repeated, and an interrupted one goes on.

    Raises:
        BrimfulError: a loss spike, or the folder belongs to another run.
        StoppedError: a signal asked to stop.
    """
    texts = stage.texts
    steps = max(1, round(stage.epochs * len(texts) / options.batch))

    def open_stream() -> Stream:
        if not isinstance(texts, Examples):
            return opened.enter_context(closing(texts.stream(runtime)))
        return example_stream(texts, options.batch, options.micro_batch_tokens, stage.seed, runtime)

    def make_trainer() -> Trainer:
        training = Training(
            config=options.trainer.over(steps),
            optimizer=options.optimizer.at(stage.rate),
            schedule=ScheduleConfig(**vars(options.schedule)),
            seed=stage.seed,
            identity=run.identity,
        )
        return Trainer(stage.encoder, stage.objective, open_stream(), runtime, stage.folder, training)

    with ExitStack() as opened:
        return run.train(stage.folder, stage.title, make_trainer, stage.trained)
