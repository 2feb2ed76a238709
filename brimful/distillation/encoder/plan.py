"""The plan of an encoder's distillation: its teacher, its texts, and the student before its training.

The student imitates the teacher's layers, as in TinyBERT's general distillation, and then the pooled vectors
of texts.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.data.examples import check_length
from brimful.distillation.encoder.config import DistilEncoderConfig
from brimful.distillation.encoder.shards import ShardTexts, absolute_sources
from brimful.distillation.encoder.teacher import VectorTeacher, load_vector_teacher
from brimful.distillation.options import with_absolute_paths
from brimful.distillation.shape import kept_layers, layers_of, student_shape
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.objectives.imitation import LayerDistillation
from brimful.runs.directory import model_files, named_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import RunPlan, Summary
from brimful.tables.layouts import find_layout
from brimful.tables.table import Table
from brimful.tables.table_files import read_file
from brimful.tasks.classification import Classification
from brimful.tasks.encoded import Encoded, warn_of_lost_ends
from brimful.tasks.registry import task_of
from brimful.tasks.task_files import TaskFiles
from brimful.train.objective import Runtime

BLOCKS = "blocks"
"""The folder of packing plans of prepared data, kept until the run is finished."""


@dataclass(frozen=True)
class Texts:
    """What the student learns from.

    Attributes:
        parts: the texts of each unlabelled file, without empty ones.
        sizes: the rows of those files.
        test: the texts to measure on.
        shards: prepared data, from which the layers are learned in place of the texts.
    """

    parts: list[Encoded]
    sizes: list[int]
    test: Table | None
    shards: ShardTexts | None

    @property
    def count(self) -> int:
        """How many texts there are, without prepared data."""
        return sum(map(len, self.parts))


@dataclass(frozen=True)
class DistilEncoderPlan(RunPlan):
    """The distillation of an encoder before it starts.

    Attributes:
        config: resolved.
        max_length: the most tokens of a text, for the student.
        same: whether the student's examples are the teacher's too.
        layers: the objective of the first stage; None where there is none.
    """

    config: DistilEncoderConfig
    teacher: VectorTeacher
    student: Encoder
    max_length: int
    texts: Texts
    same: bool
    layers: LayerDistillation | None
    runtime: Runtime

    @property
    def files(self) -> dict[str, Path]:
        """The texts, the teacher, and what the student starts from."""
        config = self.config
        files = named_files(unlabelled=config.unlabelled, test=config.test) | self.teacher.files
        if config.student is not None:
            files |= model_files("student", ModelFolder.open(config.student, "encoder"))
        return files

    @property
    def decides(self) -> list[Any]:
        """The prepared data."""
        return [] if self.texts.shards is None else [self.texts.shards.fingerprints]


def plan(config: DistilEncoderConfig, folder: RunFolder) -> DistilEncoderPlan:
    """Load the teacher and the student, and read the texts.

    Raises:
        BrimfulError: a model, a file or prepared data is unusable, or does not go with the others.
    """
    ranks = folder.ranks
    runtime = Runtime.of(ranks, config.precision)
    if not (config.unlabelled or config.data):
        raise UsageError("distilling an encoder needs texts: --unlabelled FILE ..., or --data FOLDER ...")
    teacher = load_vector_teacher(config)
    student = _student(config, teacher)
    longest = student.config.max_length
    max_length = config.max_length or min(teacher.length(student), longest)
    check_length(max_length, longest)
    parts, sizes, test = _read(config, student, max_length, ranks)
    same = teacher.reads_as(student, max_length)
    if teacher.encoder is None:  # refused now, if it must be
        teacher.of_texts(parts, sizes, student, same, runtime)
    announces = folder.announces and not config.dry_run
    if announces:
        into = f"{student.config.layers} layers of width {student.config.hidden_size}"
        say(f"distilling {teacher.path} into {into} on {sum(map(len, parts)):,} texts")
        if config.layers.epochs and not same:
            why = "is a file of vectors" if teacher.encoder is None else "reads other tokens"
            say(f"the teacher {why}: its vectors alone are imitated, not its layers")
    layers = None
    if config.layers.epochs and same:
        assert teacher.encoder is not None
        layers = LayerDistillation(teacher.encoder, student, config.layers.losses)
    shards = None
    if config.data:
        if layers is None:
            raise BrimfulError("--data is for the stage of the layers, which this run does not have")
        assert teacher.encoder is not None
        shards = _shards(config, teacher.encoder, max_length, folder)
        if announces:
            say(f"the layers are learned from about {len(shards):,} sequences an epoch of prepared data")
    texts = Texts(parts, sizes, test, shards)
    resolved = with_absolute_paths(config, precision=runtime.precision, data=absolute_sources(config.data))
    return DistilEncoderPlan(resolved, teacher, student, max_length, texts, same, layers, runtime)


def outlook(plan: DistilEncoderPlan) -> Summary:
    """What a dry run returns."""
    return {"dry_run": True, "texts": plan.texts.count, "student_layers": plan.student.config.layers}


def _student(config: DistilEncoderConfig, teacher: VectorTeacher) -> Encoder:
    """The student before training."""
    torch.manual_seed(config.seed)
    if config.student is not None:
        student, _ = load_pretrained(ModelFolder.open(config.student, "encoder"))
        if student.tokenizer is None:
            raise BrimfulError(f"{config.student} has no tokenizer.json; add it beside config.json")
        return _without_dropout(student)
    if teacher.encoder is None:
        raise UsageError("--teacher-vectors needs --student FOLDER, the encoder to start from")
    kept = kept_layers(config, teacher.encoder.config)
    if kept is not None:
        return _without_dropout(layers_of(config, teacher.encoder.to(torch.device("cpu")), kept))
    student = Encoder(student_shape(config, teacher.encoder.config))
    student.tokenizer, student.pooling = teacher.encoder.tokenizer, teacher.encoder.pooling
    return student


def _without_dropout(encoder: Encoder) -> Encoder:
    fresh = Encoder(replace(encoder.config, dropout=0.0, attention_dropout=0.0))
    fresh.load_state_dict(encoder.state_dict(), assign=True)
    fresh.tokenizer, fresh.pooling = encoder.tokenizer, encoder.pooling
    return fresh


def _read(
    config: DistilEncoderConfig, student: Encoder, max_length: int, ranks: World
) -> tuple[list[Encoded], list[int], Table | None]:
    """The texts to learn from, without empty ones, the rows of each file with them, and the texts to measure
    on."""
    layout = find_layout(config.layout, config.columns)
    files = TaskFiles(task_of(config.task, layout), layout, ranks, labelled=False)
    assert student.tokenizer is not None
    found, sizes = [], []
    for path in config.unlabelled:
        every = files.encode(Classification([]), path, student.tokenizer, max_length, None)
        if ranks.is_main:
            warn_of_lost_ends(every.examples.cut, len(every), path, max_length, windows=False)
        sizes.append(len(every))
        found.append(every.with_text())
    test = None if config.test is None else read_file(files.kind, config.test, labelled=False, layout=layout)
    return found, sizes, test


def _shards(config: DistilEncoderConfig, teacher: Encoder, max_length: int, folder: RunFolder) -> ShardTexts:
    main = folder.ranks.is_main
    return ShardTexts(
        config.data,
        teacher,
        max_length=max_length,
        sequences=config.batch,
        tokens=config.micro_batch_tokens,
        seed=config.seed,
        directory=folder.path / BLOCKS,
        verify=main,
        ahead=main,
    )
