"""The plan of a static student: its teachers, its texts, and the encoder that it starts from."""

from dataclasses import dataclass
from pathlib import Path

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.distillation.material import Material, Sources, open_sources, read_material
from brimful.distillation.options import with_absolute_paths
from brimful.distillation.origin import encoder_before
from brimful.distillation.static.config import DistilStaticConfig
from brimful.distillation.teachers import ModelTeacher
from brimful.hf.folders import load_pretrained
from brimful.model.encoder import Encoder
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import RunPlan, Summary
from brimful.tasks.classification import Classification
from brimful.train.objective import Runtime


@dataclass(frozen=True)
class DistilStaticPlan(RunPlan):
    """The distillation of a static student before it starts.

    Attributes:
        config: resolved.
        encoder: whose token vectors the student starts from, with its tokenizer.
    """

    config: DistilStaticConfig
    material: Material
    encoder: Encoder
    runtime: Runtime

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the files of scores, the teachers, and the encoder."""
        sources = self.material.sources
        if sources.origin is None:
            return sources.files
        return sources.files | model_files("encoder", sources.origin.encoder_folder)


@dataclass(frozen=True)
class TeachersReader:
    """A student that reads texts as its first teacher does."""

    encoder: Encoder
    max_length: int
    overlap: int | None


def plan(config: DistilStaticConfig, folder: RunFolder) -> DistilStaticPlan:
    """Load the teachers and read what they are asked about.

    Raises:
        BrimfulError: a teacher, a table or a file of scores is unusable, or the task is not one of classes of
            single texts.
    """
    runtime = Runtime.of(folder.ranks, config.precision)
    sources = open_sources(config)
    first = sources.first
    assert first is not None
    model = first.model
    reader = TeachersReader(model.encoder, config.max_length or model.max_length, model.overlap)
    material, _ = read_material(sources, reader, lambda _: model, folder.ranks)
    data = material.data
    if not isinstance(data.task, Classification) or data.train.table.second is not None:
        raise BrimfulError(f"a static student is for classes of single texts; this is {data.task.name}")
    encoder = _start(sources, first)
    if folder.announces and not config.dry_run:
        width = encoder.config.hidden_size
        say(f"static students of {width} numbers a token on {material.count:,} texts")
    resolved = with_absolute_paths(config, precision=runtime.precision)
    return DistilStaticPlan(resolved, material, encoder, runtime)


def outlook(plan: DistilStaticPlan) -> Summary:
    """What a dry run returns."""
    return {"dry_run": True, "texts": plan.material.count, "student_layers": 0}


def _start(sources: Sources, teacher: ModelTeacher) -> Encoder:
    """The encoder that the teacher was fine-tuned from, where it is known; else the teacher's."""
    if sources.origin is None:
        return teacher.model.encoder
    remedy = "give RUN/model as --teacher, with --train and --test, to start from its own encoder"
    encoder, _ = load_pretrained(encoder_before(sources.origin, remedy))
    encoder.pooling = teacher.pooling
    return encoder
