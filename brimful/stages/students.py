"""The teacher of a task, and its students: their shape, and what they start from (layers of the teacher, a
folder, or random weights)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.base.storage import crc32
from brimful.corpus.text.special_ids import truncation_side
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead, choose_pooling
from brimful.model.shape import EncoderConfig, Pooling
from brimful.objectives.layer_losses import spread_layers
from brimful.runs.directory import model_files
from brimful.stages.distil_options import DistilConfig, StudentOptions
from brimful.stages.task_options import FinetuneConfig
from brimful.stages.task_trainings import TaskStart, starting_model
from brimful.start.narrowing import narrow
from brimful.tables.table import Table
from brimful.tasks.cached_tables import cache_outputs
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.task_data import TaskData
from brimful.tasks.task_model import TaskModel, load_task_model
from brimful.train.objective import Runtime

CPU = torch.device("cpu")


def kept_layers(config: StudentOptions, shape: EncoderConfig) -> tuple[int, ...] | None:
    """The layers of the teacher that the student starts from, as wide as they are or narrower; None where it
    starts from random weights.

    Raises:
        BrimfulError: the teacher has no such layers, or not as many.
    """
    layers = config.keep_layers
    if layers is not None and not (layers and all(0 <= layer < shape.layers for layer in layers)):
        raise BrimfulError(f"keep_layers is {list(layers)}: the teacher has layers 0 to {shape.layers - 1}")
    if config.initialisation == "random" or (config.student_hidden or 0) > shape.hidden_size:
        if layers is not None:
            raise BrimfulError(
                "a student that is wider than its teacher, or has --initialisation random, starts from no"
                " layers: give --student-layers in place of --keep-layers"
            )
        return None
    if config.depth > shape.layers:
        raise BrimfulError(f"student_layers is {config.depth}: the teacher has {shape.layers} layers")
    return layers or spread_layers(shape.layers, config.depth)


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
    student = encoder.keep_layers(layers)
    shape = student_shape(config, encoder.config)
    return student if shape.hidden_size == encoder.config.hidden_size else narrow(student, shape)


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


def are_alike(ours: Tokenizer, theirs: Tokenizer) -> bool:
    """Whether two tokenizers make the same tokens of every text, and cut it on the same side."""
    hashes = tokenizer_hash(ours), tokenizer_hash(theirs)
    return hashes[0] == hashes[1] and truncation_side(ours) == truncation_side(theirs)


@dataclass(frozen=True)
class ModelTeacher:
    """A task model.

    Attributes:
        model: the teacher.
        order: the place of each label of the task among the model's.
        name: for messages.
        files: of the model, by name, which decide its outputs.
    """

    model: TaskModel
    order: list[int]
    name: str
    files: Mapping[str, int]

    @property
    def pooling(self) -> Pooling:
        """How it makes a vector of a text."""
        head = self.model.head
        return head.pooling if isinstance(head, SequenceHead) else choose_pooling(self.model.encoder)

    def reads_as(self, student: TaskModel, data: Encoded) -> bool:
        """Whether its examples of these texts are the student's: it may then be imitated token by token."""
        ours, theirs = student.encoder.tokenizer, self.model.encoder.tokenizer
        assert ours is not None
        assert theirs is not None
        if student.max_length > self.model.encoder.config.max_length:
            return False
        if are_alike(ours, theirs):
            return True
        if ours.get_vocab() != theirs.get_vocab():
            return False
        lengths = student.max_length, student.overlap
        examples = self.model.task.encode(data.table, theirs, *lengths, labelled=False).examples
        return len(examples) == len(data.examples) and all(
            np.array_equal(*pair) for pair in zip(examples.tokens, data.examples.tokens, strict=True)
        )

    def outputs(self, data: Encoded, runtime: Runtime) -> Outputs:
        """Its head's outputs for examples of its own tokens, in the order of the task's labels."""
        outputs, order = self._outputs(data, runtime), self.order
        if order == list(range(len(order))):
            return outputs
        if isinstance(outputs, np.ndarray):
            return outputs[:, order]
        return outputs.map_parts(lambda scores: scores[:, order])

    def _outputs(self, data: Encoded, runtime: Runtime) -> Outputs:
        """The same in the order of its own labels, out of the cache if they are known."""

        def compute() -> Outputs:
            self.model.to(runtime.device)
            try:
                return self.model.outputs(data.examples, runtime.precision)
            except BrimfulError as error:
                raise BrimfulError(f"the teacher {self.name}: {error}") from error

        decides = {"model": self.files, "precision": runtime.precision, "device": runtime.device.type}
        return cache_outputs(decides, data, compute, runtime.world)

    def row_outputs(self, table: Table, runtime: Runtime) -> np.ndarray:
        """What it says of each row, with the tokenizer and the windows of its own; float32 (rows, C), in the
        order of the task's labels."""
        return self.answers(self.model.encode(table), runtime)

    def answers(self, data: Encoded, runtime: Runtime) -> Any:
        """Its answer for each row, from examples of its own tokens, as `Task.measure` takes them."""
        return self.model.task.answers(_writable(self.outputs(data, runtime)), data)

    def order_of(self, labels: Sequence[str]) -> list[int]:
        """The place of each label among the model's.

        Raises:
            BrimfulError: they are not the same labels.
        """
        theirs = self.model.task.labels
        if sorted(theirs) != sorted(labels):
            raise BrimfulError(
                f"the teacher {self.name} has the labels {', '.join(theirs[:8])}, the training table"
                f" {', '.join(labels[:8])}: name them alike, in id2label of its config.json"
            )
        return [theirs.index(label) for label in labels]


def load_teacher(path: str) -> ModelTeacher:
    """A task model, whose labels are put in the order of the data later.

    Raises:
        BrimfulError: it is none.
    """
    folder = ModelFolder.open(path, "model")
    if not folder.has_task:
        raise BrimfulError(f"{path} is an encoder without a task: `brimful distil-encoder` makes its student")
    model, files = load_task_model(folder), model_files("teacher", folder)
    crcs = {name: crc32(file) for name, file in files.items()}
    return ModelTeacher(model, list(range(len(model.task.labels))), path, crcs)


def _writable(outputs: Outputs) -> Outputs:
    """A copy of a mapped array, which torch would warn of."""
    return np.array(outputs) if isinstance(outputs, np.ndarray) else outputs


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
        encoder, layers = teacher.model.encoder, None
        if config.student is None:
            layers = kept_layers(config, encoder.config)
        else:
            encoder = read_encoder(ModelFolder.open(config.student, "model"))
        length = config.max_length or min(teacher.model.max_length, encoder.config.max_length)
        return cls(config, origin, teacher, encoder, length, teacher.model.overlap, layers)

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
