"""The plan of a distillation: teachers, texts, and the student before its training."""

from dataclasses import dataclass, replace
from pathlib import Path

from brimful.base.console import say
from brimful.distillation.material import Material, open_sources, read_material
from brimful.distillation.options import with_absolute_paths
from brimful.distillation.task.config import DistilConfig, LogitStageConfig
from brimful.distillation.task.cost import share_of_labels
from brimful.distillation.task.start import StudentStart, start_of
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import LayerDistillation
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import RunPlan, Summary
from brimful.train.objective import Runtime

CHEAP = 1 / 3
"""Of the time of a distillation: what a baseline may take that nobody asked for."""


@dataclass(frozen=True)
class DistilPlan(RunPlan):
    """A distillation before it starts.

    Attributes:
        config: resolved.
        shape: of the student.
        alone: the stage of the students that learn from the labels alone; None where there are none.
    """

    config: DistilConfig
    start: StudentStart
    material: Material
    shape: EncoderConfig
    alone: LogitStageConfig | None
    runtime: Runtime

    @property
    def layer_drop(self) -> bool:
        """Whether the teacher's layers with its head learn from outputs alone too; not where the student is
        the same."""
        config, start, imitated = self.config, self.start, self.material.imitated
        if config.baseline != "full" or imitated is None or start.dropped is None:
            return False
        return config.layers.epochs > 0 or not start.of_teacher

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the files of scores, the teachers, and what the student starts from."""
        files = self.material.sources.files
        if self.start.folder is not None:
            files |= model_files("student", self.start.folder)
        elif self.start.of_origin:
            files |= model_files("encoder", self.start.origin_folder)
        return files


def plan(config: DistilConfig, folder: RunFolder) -> DistilPlan:
    """Load the teachers and read what they are asked about.

    Raises:
        BrimfulError: a teacher, a table, a file of scores or a setting is unusable, or does not go with the
            others.
    """
    ranks = folder.ranks
    runtime = Runtime.of(ranks, config.precision)
    sources = open_sources(config)
    start = start_of(config, sources.origin, sources.first)
    material, student = read_material(
        sources, start, lambda data: start.student(data, config.seeds[0]), ranks
    )
    material.data.task.imitation(config.logits.loss, config.temperature)  # a wrong setting is refused now
    shape, imitated = student.encoder.config, material.imitated
    if config.layers.epochs and imitated is not None:  # refused now, if it must be
        LayerDistillation(imitated.model.encoder, student.encoder, config.layers.losses)
    elif config.layers.epochs and ranks.is_main:
        why = "does not read the student's tokens" if sources.teachers else "has no layers"
        say(f"the teacher {why}: its outputs alone are imitated, not its layers")
    if folder.announces and not config.dry_run:
        taught = "the scores"
        if sources.first is not None:
            old = sources.first.model.encoder.config
            taught = f"{old.layers} layers of width {old.hidden_size}"
        into = f"{shape.layers} layers of width {shape.hidden_size}"
        say(f"distilling {taught} into {into} on {material.count:,} texts")
        if start.layers is None and config.student is None and config.initialisation != "random":
            say("the student is wider than its teacher, and starts from random weights")
    alone = _alone(config, material, shape, folder.announces)
    config = with_absolute_paths(config, precision=runtime.precision)
    return DistilPlan(config, start, material, shape, alone, runtime)


def _alone(
    config: DistilConfig, material: Material, shape: EncoderConfig, announces: bool
) -> LogitStageConfig | None:
    """The stage of the students that learn from the labels alone, of as many passes as the others have; None
    where they are not wanted, or would take too long for what nobody asked for."""
    epochs = config.logits.epochs + (config.layers.epochs if material.imitated is not None else 0.0)
    stage = replace(config.logits, epochs=epochs)
    if config.baseline != "quick":
        return stage if config.baseline == "full" else None
    share = share_of_labels(config, material, shape, epochs)
    cheap = 0 < share < CHEAP
    if announces and share > 0:
        student = "the same student from the labels alone"
        takes = f"about {100 * share:.0f} % of the distillation's time"
        say(
            f"{student} is trained too, in {takes}"
            if cheap
            else f"{student} would take {takes} and is left out: --baseline full trains it"
        )
    return stage if cheap else None


def outlook(plan: DistilPlan) -> Summary:
    """What a dry run returns."""
    return {"dry_run": True, "texts": plan.material.count, "student_layers": plan.shape.layers}
