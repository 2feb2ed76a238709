"""The stages in which students are trained: their folders, their titles, and their seconds in all."""

from collections.abc import Mapping

from torch import nn

from brimful.data.examples import Examples
from brimful.model.encoder import Encoder
from brimful.runs.folder import Result, RunFolder
from brimful.stages.distil_options import LayeredOptions, StageConfig
from brimful.stages.training import Stage, StreamedTexts, train_stage
from brimful.train.objective import Objective, Runtime


class StudentTrainer:
    """Trains the students of a distillation, stage by stage.

    Attributes:
        results: of all stages so far.
    """

    def __init__(self, options: LayeredOptions, run: RunFolder, runtime: Runtime) -> None:
        self.options, self.run, self.runtime = options, run, runtime
        self.results: list[Result] = []

    @property
    def seconds(self) -> float:
        """The seconds of training, in all."""
        return sum(result.seconds for result in self.results)

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
        """Train one stage to its end; not at all if it has no epochs. Its weights are in `trained` then.

        Args:
            name: of the stage, which names its folder with the seed.
        """
        if not stage.epochs:
            return
        folder = self.run.path / "stages" / f"seed-{seed}" / name
        title = f"distil {name}, seed {seed}"
        rate = stage.learning_rate
        result = train_stage(
            Stage(title, folder, seed, encoder, objective, texts, stage.epochs, rate, trained),
            self.options,
            self.run,
            self.runtime,
        )
        result.load(trained)
        self.results.append(result)
