"""What teachers of a task say of texts: models, and files of scores.

A teacher's outputs are a target of the student's examples: logits, or what stands for them. The outputs of a
model are as it gives them; scores (probabilities, or values) are turned back into outputs
(`Task.outputs_of`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError, nearest
from brimful.base.storage import crc32
from brimful.corpus.text.special_ids import truncation_side
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import SequenceHead, pooling_of
from brimful.model.shape import Pooling
from brimful.runs.directory import model_files
from brimful.tables.file_rows import FORMATS, rows_of_file
from brimful.tables.table import Table
from brimful.tables.text_files import readable
from brimful.tasks.cache import known_outputs
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import Outputs
from brimful.tasks.model import TaskModel, load_task_model
from brimful.tasks.task import Task
from brimful.train.objective import Runtime

TEXT, TEXT_B = "text", "text_b"
"""The columns of texts in a file of scores."""
SCORES = "scores"
"""The column of scores: an object, a number for each label."""
ROUNDING = 1e-4
"""How far a probability may lie outside 0 to 1, which it is then set to."""


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

    def scores(self, table: Table, runtime: Runtime) -> np.ndarray:
        """What it says of each row, with the tokenizer and the windows of its own; float32 (rows, C), in the
        order of the task's labels."""
        data = self.model.encode(table)
        answers = self.model.task.answers(_writable(self._outputs(data, runtime)), data)
        return self.model.task.scores(answers)[:, self.order]

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


def read_scores(path: Path | str, task: Task, learned: Sequence[Table], test: Table) -> list[np.ndarray]:
    """The scores in a file, for the rows of each table and then of test: float32 (rows, C); NaN where it has
    none of a test row.

    Args:
        path: a table with text (text_b) and `scores` or a column for each label; the scores of a text that
            stands there several times are averaged.

    Raises:
        BrimfulError: the file cannot be read, has other labels or lacks a text, or its numbers are no scores.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise BrimfulError(f"{path}: scores are {', '.join(FORMATS)} files")
    several: dict[tuple[str, str], list[np.ndarray]] = {}
    for key, values in _rows(path, task):
        several.setdefault(key, []).append(values)
    known = {key: np.mean(values, axis=0) for key, values in several.items()}
    for table in learned:
        missing = [row for row, key in enumerate(table.keys()) if key not in known]
        if missing:
            raise BrimfulError(
                f"{path} has no scores of {table.texts[missing[0]]!r:.60} ({table.where(missing[0])});"
                f" {len(missing):,} of the {len(table):,} texts have none"
            )
    nothing = np.full(len(task.labels), np.nan, dtype=np.float32)
    keys = [table.keys() for table in (*learned, test)]
    return [np.stack([known.get(key, nothing) for key in each]) for each in keys]


def _rows(path: Path, task: Task) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
    labels = task.labels
    with readable(path):
        for number, row in rows_of_file(path, [TEXT]):
            where = f"{path}, {'row' if path.suffix == '.parquet' else 'line'} {number}"
            if TEXT not in row:
                raise BrimfulError(f"{where} has no {TEXT!r}: {nearest(TEXT, list(row))}")
            given = row.get(SCORES, row)
            if isinstance(given, str):
                try:
                    given = json.loads(given)
                except ValueError as error:
                    raise BrimfulError(f"{where}: {SCORES} is not JSON: {given!r:.60}") from error
            if not isinstance(given, Mapping) or (missing := [one for one in labels if one not in given]):
                lacks = f"no score of {missing[0]!r}" if isinstance(given, Mapping) else f"no {SCORES}"
                raise BrimfulError(
                    f"{where} has {lacks}: it needs {SCORES}, an object, or a column for each of"
                    f" {', '.join(labels[:8])}"
                )
            values = _numbers([given[label] for label in labels], where)
            yield (str(row[TEXT]), str(row.get(TEXT_B) or "")), _checked(values, task, where)


def _numbers(values: Sequence[Any], where: str) -> np.ndarray:
    try:
        found = np.array([float(value) for value in values], dtype=np.float32)
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if not np.isfinite(found).all():
        raise BrimfulError(f"{where}: the scores {values!r:.60} are not all finite numbers")
    return found


def _checked(values: np.ndarray, task: Task, where: str) -> np.ndarray:
    """Refuse what are no probabilities, where the task has probabilities."""
    if task.problem_type == "regression":
        return values
    exclusive = task.problem_type == "single_label_classification"
    outside = (values < -ROUNDING).any() or (values > 1 + ROUNDING).any()
    if outside or (exclusive and abs(float(values.sum()) - 1) > 1e-2):
        shown = ", ".join(f"{value:g}" for value in values[:8])
        raise BrimfulError(
            f"{where}: the scores {shown} are no probabilities"
            f"{', which add up to 1' if exclusive else ''}: write a softmax or sigmoid of logits"
        )
    return np.clip(values, 0.0, 1.0)
