"""The trainings of a distillation."""

from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import nn

from brimful.data.examples import Examples
from brimful.data.loader import Stream
from brimful.distillation.options import LayeredOptions, StageConfig
from brimful.model.encoder import Encoder
from brimful.optim.schedule import ScheduleConfig
from brimful.runs.folder import Result, RunFolder
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
class StageTrainer:
    """Trains students, stage by stage.

    Attributes:
        results: of all stages so far.
    """

    config: LayeredOptions
    run: RunFolder
    runtime: Runtime
    results: list[Result] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Of training, in all."""
        return sum(result.seconds for result in self.results)

    @property
    def folders(self) -> list[Path]:
        """Of all stages so far."""
        return [result.directory for result in self.results]

    def train(
        self,
        name: str,
        seed: int,
        stage: StageConfig,
        texts: Examples | StreamedTexts,
        encoder: Encoder,
        objective: Objective,
        trained: Mapping[str, nn.Module],
    ) -> None:
        """Train one stage to its end; not at all if it has no epochs. A finished stage is not repeated.

        Args:
            name: of the stage, which names its folder with the seed.
            trained: the modules whose weights the stage leaves.
        """
        if not stage.epochs:
            return
        config, runtime = self.config, self.runtime
        folder = self.folder(seed, name)
        opened: OpenStream | None = None
        if isinstance(texts, Examples):
            count = texts.units
            stream: Stream = example_stream(texts, config.batch, config.micro_batch_tokens, seed, runtime)
        else:
            count = len(texts)
            stream = opened = texts.stream(runtime)
        steps = max(1, round(stage.epochs * count / config.batch))

        def trainer() -> Trainer:
            return Trainer(
                encoder,
                objective,
                stream,
                runtime,
                folder,
                Training(
                    config=config.trainer.over(steps),
                    optimizer=config.optimizer.at(stage.learning_rate),
                    schedule=ScheduleConfig(**vars(config.schedule)),
                    seed=seed,
                    identity=self.run.identity,
                ),
            )

        with closing(opened) if opened is not None else nullcontext():
            result = self.run.train(folder, f"distil {name}, seed {seed}", trainer, trained)
        result.load(trained)
        self.results.append(result)

    def folder(self, seed: int, name: str) -> Path:
        """Of a stage."""
        return self.run.path / "stages" / f"seed-{seed}" / name
