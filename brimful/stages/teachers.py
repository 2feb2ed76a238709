"""What a teacher of a task says of texts: its outputs are a target of the student's examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.base.storage import crc32
from brimful.corpus.text.special_ids import truncation_side
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import SequenceHead, pooling_of
from brimful.model.shape import Pooling
from brimful.runs.directory import model_files
from brimful.tables.table import Table
from brimful.tasks.cache import known_outputs
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import Outputs
from brimful.tasks.model import TaskModel, load_task_model
from brimful.train.objective import Runtime


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
        return head.pooling if isinstance(head, SequenceHead) else pooling_of(self.model.encoder)

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
        found, order = self._outputs(data, runtime), self.order
        if order == list(range(len(order))):
            return found
        if isinstance(found, np.ndarray):
            return found[:, order]
        return found.map_parts(lambda scores: scores[:, order])

    def _outputs(self, data: Encoded, runtime: Runtime) -> Outputs:
        """The same in the order of its own labels, out of the cache if they are known."""

        def compute() -> Outputs:
            self.model.to(runtime.device)
            try:
                return self.model.outputs(data.examples, runtime.precision)
            except BrimfulError as error:
                raise BrimfulError(f"the teacher {self.name}: {error}") from error

        decides = {"model": self.files, "precision": runtime.precision, "device": runtime.device.type}
        return known_outputs(decides, data, compute, runtime.world)

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
