"""The plan of a distillation: teachers, texts, and the student before its training."""

from dataclasses import dataclass
from pathlib import Path

from brimful.console import say
from brimful.distillation.material import Material, open_sources, read_material
from brimful.distillation.options import with_absolute_paths
from brimful.distillation.task.config import DistilConfig
from brimful.distillation.task.start import Start, start_of
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import LayerDistillation
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import RunPlan, Summary
from brimful.train.objective import Runtime


@dataclass(frozen=True)
class DistilPlan(RunPlan):
    """A distillation before it starts.

    Attributes:
        config: resolved.
        shape: of the student.
    """

    config: DistilConfig
    start: Start
    material: Material
    shape: EncoderConfig
    runtime: Runtime

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
    config = with_absolute_paths(config, precision=runtime.precision)
    return DistilPlan(config, start, material, shape, runtime)


def outlook(plan: DistilPlan) -> Summary:
    """What a dry run returns."""
    return {"dry_run": True, "texts": plan.material.count, "student_layers": plan.shape.layers}
