"""The teacher of a task, and its students: their shape and their first weights.

A student starts from layers of the teacher, from a folder, or from random weights.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import getfile
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.base.storage import crc32
from brimful.base.types import Values
from brimful.corpus.text.special_ids import truncation_side
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.data.examples import Examples
from brimful.hf.folders import load_pretrained, require_tokenizer
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead, choose_pooling
from brimful.model.shape import EncoderConfig, Pooling
from brimful.objectives.layer_losses import LayerNumbers, spread_layers
from brimful.runs.inputs import RunFiles, model_files
from brimful.stages.distil_options import DistilConfig, StudentOptions
from brimful.stages.task_options import FinetuneConfig
from brimful.stages.task_trainings import TaskStart, starting_model
from brimful.start.narrowing import narrow
from brimful.tables.table import Table
from brimful.tasks.cached_tables import cache_column, hash_code
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.task_data import TaskData
from brimful.tasks.task_model import TaskModel, load_task_model
from brimful.train.objective import Runtime

CPU = torch.device("cpu")


def choose_layers(config: StudentOptions, shape: EncoderConfig) -> LayerNumbers | None:
    """Return the layers, of the teacher's shape, that the student starts from; None for random weights.

    Raises:
        BrimfulError: the teacher has no such layers, or fewer.
    """
    layers = config.keep_layers
    if layers is not None and not (layers and all(0 <= layer < shape.layers for layer in layers)):
        raise BrimfulError(f"keep_layers is {list(layers)}: the teacher has layers 0 to {shape.layers - 1}")
    # Weights can be made narrower, not wider.
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


def make_student_shape(config: StudentOptions, shape: EncoderConfig) -> EncoderConfig:
    """Make the shape of a student: the teacher's, with its own depth and width."""
    width = config.student_hidden or shape.hidden_size
    # The same ratio to the width, rounded up to a multiple of 64.
    intermediate = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    if width < shape.hidden_size:
        intermediate = min(intermediate, shape.intermediate_size)  # its neurons are the teacher's
    return replace(
        shape,
        layers=config.depth,
        hidden_size=width,
        intermediate_size=intermediate,
        dropout=0.0,
        attention_dropout=0.0,
    )


def copy_layers(config: StudentOptions, encoder: Encoder, layers: LayerNumbers) -> Encoder:
    """Copy layers of an encoder, and make them narrower if the student is.

    Raises:
        BrimfulError: the width does not fit the heads.
    """
    student = encoder.keep_layers(layers)
    shape = make_student_shape(config, encoder.config)
    if shape.hidden_size == encoder.config.hidden_size:
        return student
    return narrow(student, shape)


def random_encoder(config: StudentOptions, teacher: Encoder) -> Encoder:
    """Make a student of random weights, with the tokenizer and the pooling of its teacher."""
    encoder = Encoder(make_student_shape(config, teacher.config))
    encoder.tokenizer, encoder.pooling = teacher.tokenizer, teacher.pooling
    return encoder


def read_encoder(folder: ModelFolder) -> Encoder:
    """Read an encoder with its tokenizer, which it must have."""
    encoder, _ = load_pretrained(folder)
    require_tokenizer(encoder, folder)
    return encoder


@dataclass(frozen=True)
class ModelTeacher:
    """A task model whose outputs students imitate.

    Attributes:
        order: the place of each label of the task among the model's labels.
        name: the folder, for messages.
        files: CRCs of the model's files, by name: they decide its outputs.
    """

    model: TaskModel
    order: list[int]
    name: str
    files: Mapping[str, int]

    @property
    def pooling(self) -> Pooling:
        """How the teacher makes a vector of a text."""
        head = self.model.head
        return head.pooling if isinstance(head, SequenceHead) else choose_pooling(self.model.encoder)

    def reads_as(self, student: TaskModel, data: Encoded) -> bool:
        """Whether the teacher makes the same examples of these texts, so that tokens can be imitated."""
        tokenizer, teacher_tokenizer = student.tokenizer, self.model.tokenizer
        if student.max_length > self.model.encoder.config.max_length:
            return False
        # Equal tokenizers that cut on the same side make the same tokens of every text.
        sides = {truncation_side(tokenizer), truncation_side(teacher_tokenizer)}
        if tokenizer_hash(tokenizer) == tokenizer_hash(teacher_tokenizer) and len(sides) == 1:
            return True
        if tokenizer.get_vocab() != teacher_tokenizer.get_vocab():
            return False
        # Tokenizers of one vocabulary may still agree on these texts: compare all tokens.
        examples = self.model.task.encode(
            data.table, teacher_tokenizer, student.max_length, student.overlap, labelled=False
        ).examples
        if len(examples) != len(data.examples):
            return False
        pairs = zip(examples.tokens, data.examples.tokens, strict=True)
        return all(np.array_equal(first, second) for first, second in pairs)

    def compute_outputs(self, data: Encoded, runtime: Runtime) -> Outputs:
        """Compute the outputs of the teacher's head for examples of its tokens, or take them from the cache.

        Returns:
            outputs in the order of the task's labels.
        """

        def compute() -> Outputs:
            self.model.to(runtime.device)
            try:
                return self.model.outputs(data.examples, runtime.precision)
            except BrimfulError as error:
                raise BrimfulError(f"the teacher {self.name}: {error}") from error

        decides = {"model": self.files, "precision": runtime.precision, "device": runtime.device.type}
        # The cache has the order of the model's own labels, so that other tables can use it.
        outputs = cache_outputs(decides, data.examples, compute, runtime.world)
        if self.order == list(range(len(self.order))):
            return outputs
        if isinstance(outputs, ndarray):
            return outputs[:, self.order]
        return outputs.map_parts(lambda scores: scores[:, self.order])

    def answer_table(self, table: Table, runtime: Runtime) -> ndarray:
        """Answer each row with the teacher's tokenizer and windows: float32 (rows, C), in the order of the
        task's labels."""
        return self.answer_rows(self.model.encode(table), runtime)

    def answer_rows(self, data: Encoded, runtime: Runtime) -> Any:
        """Answer each row, from examples of the teacher's tokens, as `Task.measure` takes answers."""
        outputs = self.compute_outputs(data, runtime)
        if isinstance(outputs, ndarray):
            outputs = np.array(outputs)  # a copy: torch would warn of a read-only map of the cache's file
        return self.model.task.answers(outputs, data)

    def order_of(self, labels: Sequence[str]) -> list[int]:
        """Return the place of each label among the model's labels, which must be the same."""
        own_labels = self.model.task.labels
        if sorted(own_labels) != sorted(labels):
            raise BrimfulError(
                f"the teacher {self.name} has the labels {', '.join(own_labels[:8])}, the training table"
                f" {', '.join(labels[:8])}: name them alike, in id2label of its config.json"
            )
        return [own_labels.index(label) for label in labels]


def load_teacher(path: str) -> ModelTeacher:
    """Load a task model; refuse an encoder without a task. The labels are put in the data's order later."""
    folder = ModelFolder.open(path, "model")
    if not folder.has_task:
        raise BrimfulError(f"{path} is an encoder without a task: `brimful distil-encoder` makes its student")
    model = load_task_model(folder)
    files = {name: crc32(file) for name, file in model_files("teacher", folder).items()}
    return ModelTeacher(model, list(range(len(model.task.labels))), path, files)


@dataclass(frozen=True)
class StudentStart:
    """The start of the students of a task.

    Attributes:
        teacher_run: the teacher's fine-tuning, where it is known.
        encoder: an encoder with the student's tokenizer.
        max_length, overlap: as in `TaskModel`.
        layers: the teacher's layers that the student starts from; None with a folder or random weights.
    """

    config: DistilConfig
    teacher_run: FinetuneConfig | None
    teacher: ModelTeacher
    encoder: Encoder
    max_length: int
    overlap: int | None
    layers: LayerNumbers | None

    @classmethod
    def from_options(
        cls, config: DistilConfig, teacher_run: FinetuneConfig | None, teacher: ModelTeacher
    ) -> "StudentStart":
        """Resolve the options of a distillation; refuse a shape that does not fit the teacher."""
        encoder, layers = teacher.model.encoder, None
        if config.student is None:
            layers = choose_layers(config, encoder.config)
        else:
            encoder = read_encoder(ModelFolder.open(config.student, "model"))
        length = config.max_length or min(teacher.model.max_length, encoder.config.max_length)
        return cls(config, teacher_run, teacher, encoder, length, teacher.model.overlap, layers)

    @property
    def files(self) -> RunFiles:
        """The files of the folder, other than the teacher's, that the student starts from."""
        if self.config.student is None:
            return {}
        return model_files("student", ModelFolder.open(self.config.student, "model"))

    def make_student(self, data: TaskData, seed: int) -> TaskModel:
        """Make the student before training."""
        config, task = self.config, data.task
        encoder: Encoder
        head: Any
        if config.student is not None:
            start = TaskStart.read(ModelFolder.open(config.student, "model"))
            options = FinetuneConfig(dropout=0.0)
            if start.model is None and start.encoder.pooling is None:
                options = replace(options, pooling=self.teacher.pooling)
            encoder, head = starting_model(options, seed, task, start)
        elif self.layers is None:
            torch.manual_seed(seed)
            encoder = random_encoder(config, self.teacher.model.encoder)
            encoder.pooling = self.teacher.pooling
            head = task.new_head(encoder)
        else:
            options = FinetuneConfig(dropout=0.0, pooling=self.teacher.pooling)
            teacher = self.teacher.model
            kept = copy_layers(config, teacher.encoder.to(CPU), self.layers)
            encoder, head = starting_model(options, seed, task, TaskStart(kept, {}, teacher))
        pairs = data.train.table.second is not None
        return TaskModel(task, encoder, head, self.max_length, self.overlap, pairs=pairs)


def cache_outputs(
    decides: Values, examples: Examples, compute: Callable[[], Outputs], ranks: World
) -> Outputs:
    """Return the outputs of a model for examples, from the cache if it has them. Every rank calls this.

    Args:
        decides: all that decides the outputs, except the examples and this package's code.
        compute: computes the outputs. The main rank calls it.
    """
    digest = hashlib.sha256(examples.lengths.tobytes())
    for ids, segments in zip(examples.tokens, examples.segments, strict=True):
        digest.update(ids.tobytes())
        digest.update(segments.tobytes())
    key = {"outputs": decides, "tokens": digest.hexdigest(), "code": hash_code(getfile(compute))}
    return cache_column(key, compute, ranks, "a teacher's outputs", "")
