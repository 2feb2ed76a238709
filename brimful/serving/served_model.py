"""A model that is open to predict, with one interface for `predict` and `serve` whatever computes it.

`open_model` opens models that onnxruntime computes, without torch; `torch_models` opens those with weights of
their own.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from tokenizers import Tokenizer

from brimful.data.examples import Examples, check_length
from brimful.serving.config import ModelOptions
from brimful.tables.layouts import FileLayout
from brimful.tables.table import Table, Take, require_pairs
from brimful.tables.table_files import read_file, read_texts
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.prediction_form import Outputs, PredictionForm, Row
from brimful.tasks.registry import calibrate

ComputeOutputs = Callable[[Examples], Any]
"""Computes the outputs of each example."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that is open.

    Attributes:
        max_length, overlap: as in `tasks.task_model.TaskModel`.
        tokenizer: the model's own, without truncation.
        outputs: a function that computes the outputs of each example.
        precision: the number format of the computation.
        threads: the number of threads of the computation, which callers at the same time may divide.
        on_threads: returns a context in which the calling thread computes on `count` threads.
        width: the numbers of a vector; 0 of a task model.
        prompt: the text that stands before each text of an encoder, and is read with it.
    """

    max_length: int
    overlap: int | None
    tokenizer: Tokenizer
    outputs: ComputeOutputs
    precision: str
    threads: int = 1
    on_threads: Callable[[int], AbstractContextManager[Any]] = nullcontext
    width: int = 0
    prompt: str = ""


@dataclass(frozen=True, kw_only=True)
class ServedTask(Served):
    """A task model.

    Attributes:
        temperature: the divisor of a classifier's logits; None without calibration.
        pairs: whether it reads pairs of texts; None if that is unknown.
    """

    task: PredictionForm
    temperature: float | None = None
    pairs: bool | None = None

    def read(self, path: str, layout: FileLayout, take: Take) -> Table:
        """Return a slice of a file of texts."""
        return read_file(self.task, path, labelled=False, layout=layout, take=take)

    def make_table(self, texts: list[str], second: list[str] | None) -> Table:
        """Return the table of texts or pairs in memory."""
        return self.task.from_texts(texts, second)

    def encode(self, table: Table, overlap: int | None) -> Encoded:
        """Return the examples of a table. Windows share `overlap` tokens; None cuts long texts."""
        if self.pairs is not None:
            require_pairs(table, self.pairs, "the model's training table")
        characters = self.task.characters
        return encode(table, self.tokenizer, self.max_length, overlap=overlap, characters=characters)

    def answers(self, outputs: Outputs, data: Encoded) -> Any:
        """Return one answer for each row of a table, calibrated, from the outputs of its examples."""
        return calibrate(self.task.answers(outputs, data), self.temperature)

    def rows(self, answers: Any, data: Encoded) -> list[Row]:
        """Return the row of predictions that each answer becomes."""
        return self.task.rows(answers, data)


@dataclass(frozen=True, kw_only=True)
class ServedEncoder(Served):
    """An encoder, whose outputs are vectors, float32 (n, width).

    Attributes:
        unit: whether answers are scaled to length 1.
    """

    unit: bool = False

    def read(self, path: str, layout: FileLayout, take: Take) -> Table:
        return read_texts(path, layout, take)

    def make_table(self, texts: list[str], second: list[str] | None) -> Table:
        return Table(Path("texts"), texts, second, None)

    def encode(self, table: Table, overlap: int | None) -> Encoded:
        return encode(table, self.tokenizer, self.max_length, overlap=overlap, prompt=self.prompt)

    def answers(self, outputs: ndarray, data: Encoded) -> ndarray:
        """Return float32 (texts, width): the vector of a text, or the mean of its windows' vectors."""
        vectors = data.examples.mean_over_windows(outputs)
        if self.unit:  # the mean of vectors of length 1 is shorter
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors

    def rows(self, answers: ndarray, data: Encoded) -> list[Any]:
        return list(answers)


def choose_max_length(options: ModelOptions, default: int, longest: int) -> int:
    """Return the most tokens of an example, at most `longest`: as the options say, else the default."""
    max_length = default if options.max_length is None else options.max_length
    check_length(max_length, longest)
    return max_length


def abstain(rows: Sequence[Row], below: float) -> list[Row]:
    """Return the rows with `abstained`: whether the probability is under `below`."""
    return [row | {"abstained": row["probability"] < below} for row in rows]
