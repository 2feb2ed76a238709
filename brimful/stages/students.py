"""Students: their shape, and what they start from (layers of a teacher, a folder, or random weights)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from brimful.base.errors import BrimfulError
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from brimful.objectives.layer_losses import spread_layers
from brimful.runs.directory import model_files
from brimful.stages.distil_options import DistilConfig, StudentOptions
from brimful.stages.finetune_trainings import TaskStart, starting_model
from brimful.stages.task_options import FinetuneConfig
from brimful.stages.teachers import ModelTeacher
from brimful.start.narrowing import narrow
from brimful.tasks.data import TaskData
from brimful.tasks.model import TaskModel

CPU = torch.device("cpu")


def kept_layers(config: StudentOptions, shape: EncoderConfig) -> tuple[int, ...] | None:
    """The layers of the teacher that the student starts from, as wide as they are or narrower; None where it
    starts from random weights.

    Raises:
        BrimfulError: the teacher has no such layers, or not as many.
    """
    kept = config.keep_layers
    if kept is not None and not (kept and all(0 <= layer < shape.layers for layer in kept)):
        raise BrimfulError(f"keep_layers is {list(kept)}: the teacher has layers 0 to {shape.layers - 1}")
    if config.initialisation == "random" or (config.student_hidden or 0) > shape.hidden_size:
        if kept is not None:
            raise BrimfulError(
                "a student that is wider than its teacher, or has --initialisation random, starts from no"
                " layers: give --student-layers in place of --keep-layers"
            )
        return None
    if config.depth > shape.layers:
        raise BrimfulError(f"student_layers is {config.depth}: the teacher has {shape.layers} layers")
    return kept or spread_layers(shape.layers, config.depth)


def student_shape(config: StudentOptions, shape: EncoderConfig) -> EncoderConfig:
    """The shape of a student: the teacher's, with its own depth and width."""
    width = config.student_hidden or shape.hidden_size
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    if width < shape.hidden_size:
        inner = min(inner, shape.intermediate_size)  # its neurons are the teacher's
    return replace(
        shape,
        layers=config.depth,
        hidden_size=width,
        intermediate_size=inner,
        dropout=0.0,
        attention_dropout=0.0,
    )


def layers_of(config: StudentOptions, encoder: Encoder, layers: tuple[int, ...]) -> Encoder:
    """Copies of layers of an encoder, narrower if the student is.

    Raises:
        BrimfulError: the width does not fit the heads.
    """
    kept = encoder.keep_layers(layers)
    shape = student_shape(config, encoder.config)
    return kept if shape.hidden_size == encoder.config.hidden_size else narrow(kept, shape)


def random_encoder(config: StudentOptions, like: Encoder) -> Encoder:
    """A student of random weights, with the tokenizer and the pooling of an encoder."""
    encoder = Encoder(student_shape(config, like.config))
    encoder.tokenizer, encoder.pooling = like.tokenizer, like.pooling
    return encoder


def read_encoder(folder: ModelFolder) -> Encoder:
    """An encoder with its tokenizer.

    Raises:
        BrimfulError: it has none.
    """
    encoder, _ = load_pretrained(folder)
    if encoder.tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    return encoder


@dataclass(frozen=True)
class StudentStart:
    """What students of a task start from.

    Attributes:
        origin: the teacher's fine-tuning, where it is known.
        encoder: whose tokenizer the student has.
        max_length, overlap: as in `TaskModel`.
        layers: of the teacher that are kept; None: the student has a folder or random weights.
    """

    config: DistilConfig
    origin: FinetuneConfig | None
    teacher: ModelTeacher
    encoder: Encoder
    max_length: int
    overlap: int | None
    layers: tuple[int, ...] | None

    @classmethod
    def of(cls, config: DistilConfig, origin: FinetuneConfig | None, teacher: ModelTeacher) -> "StudentStart":
        """What the options say.

        Raises:
            BrimfulError: the shape does not fit the teacher.
        """
        encoder, kept = teacher.model.encoder, None
        if config.student is None:
            kept = kept_layers(config, encoder.config)
        else:
            encoder = read_encoder(ModelFolder.open(config.student, "model"))
        length = config.max_length or min(teacher.model.max_length, encoder.config.max_length)
        return cls(config, origin, teacher, encoder, length, teacher.model.overlap, kept)

    @property
    def origin_folder(self) -> ModelFolder | None:
        """Of the encoder that the teacher was fine-tuned from, where students start from its layers.

        Raises:
            BrimfulError: it is there no more.
        """
        if self.layers is None or self.origin is None or self.config.initialisation != "pretrained":
            return None
        try:
            return self.origin.encoder_folder
        except BrimfulError as error:
            raise BrimfulError(
                f"the student would start from the encoder that the teacher was fine-tuned from, but {error};"
                " give --student FOLDER or --initialisation teacher"
            ) from error

    @property
    def files(self) -> dict[str, Path]:
        """Those of the student's folder or of the encoder that the teacher was fine-tuned from."""
        if self.config.student is not None:
            return model_files("student", ModelFolder.open(self.config.student, "model"))
        folder = self.origin_folder
        return {} if folder is None else model_files("encoder", folder)

    def student(self, data: TaskData, seed: int) -> TaskModel:
        """The student before training."""
        task, config, teacher = data.task, self.config, self.teacher
        options = FinetuneConfig(dropout=0.0)
        model: tuple[Encoder, Any]
        if config.student is not None:
            start = TaskStart.of(ModelFolder.open(config.student, "model"))
            if start.model is None and start.encoder.pooling is None:
                options = replace(options, pooling=teacher.pooling)
            model = starting_model(options, seed, task, start)
        elif self.layers is None:
            torch.manual_seed(seed)
            encoder = random_encoder(config, teacher.model.encoder)
            encoder.pooling = teacher.pooling
            model = encoder, task.new_head(encoder)
        else:
            layers, folder = self.layers, self.origin_folder
            start = TaskStart(teacher.model.encoder.to(CPU), {}, teacher.model)
            if folder is not None:
                assert self.origin is not None
                among = self.origin.layers or range(teacher.model.encoder.config.layers)
                layers = tuple(among[layer] for layer in layers)
                start = TaskStart.of(folder)
            options = replace(options, pooling=teacher.pooling)
            start = replace(start, encoder=layers_of(config, start.encoder, layers))
            model = starting_model(options, seed, task, start)
        pairs = data.train.table.second is not None
        return TaskModel(task, *model, self.max_length, self.overlap, pairs=pairs)
