"""What `predict` and `serve` need of a model, whatever computes it.

`opening` opens what onnxruntime computes, without torch; `torch_models` what has weights of its own.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.data.examples import Examples
from brimful.tables.layouts import FileLayout
from brimful.tables.table import Table, Take, require_pairs
from brimful.tables.table_files import read_file, read_texts
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.prediction_form import Outputs, PredictionForm, Row
from brimful.tasks.registry import calibrate


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that is open.

    Attributes:
        max_length, overlap: as in `tasks.task_model.TaskModel`.
        tokenizer: of its texts.
        outputs: of each example.
        precision: the number format of the computation.
        threads: of the computation, which callers at the same time may divide among them.
        on_threads: a context in which the calling thread computes on `count` threads.
    """

    max_length: int
    overlap: int | None
    tokenizer: Tokenizer
    outputs: Callable[[Examples], Any]
    precision: str
    threads: int = 1
    on_threads: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()


@dataclass(frozen=True, kw_only=True)
class ServedTask(Served):
    """A task model.

    Attributes:
        temperature: what the logits of a classifier are divided by, if it is known.
        pairs: whether it reads pairs of texts, if known.
    """

    task: PredictionForm
    temperature: float | None = None
    pairs: bool | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What a dry run says of it."""
        return self.task.facts

    def read(self, path: str, layout: FileLayout, take: Take) -> Table:
        """A slice of a file of texts."""
        return read_file(self.task, path, labelled=False, layout=layout, take=take)

    def encode(self, table: Table, overlap: int | None, tokenizer: Tokenizer) -> Encoded:
        """The examples of a table.

        Args:
            overlap: tokens that windows of a text share; None: texts are cut.
            tokenizer: one such as the model's own.
        """
        if self.pairs is not None:
            require_pairs(table, self.pairs, "the model's training table")
        characters = self.task.characters
        return encode(table, tokenizer, self.max_length, overlap=overlap, characters=characters)

    def answers(self, outputs: Outputs, data: Encoded) -> Any:
        """One answer for each row of a table, calibrated, from the outputs of its examples."""
        return calibrate(self.task.answers(outputs, data), self.temperature)


@dataclass(frozen=True, kw_only=True)
class ServedEncoder(Served):
    """An encoder; its outputs are vectors, float32 (n, width), in answers of length 1 if they are `unit`.
    `prompt` stands before each text, and is read with it."""

    width: int
    unit: bool = False
    prompt: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        """What a dry run says of it."""
        return {"width": self.width}

    def read(self, path: str, layout: FileLayout, take: Take) -> Table:
        """A slice of a file of texts."""
        return read_texts(path, layout, take)

    def encode(self, table: Table, overlap: int | None, tokenizer: Tokenizer) -> Encoded:
        """The examples of a table, as of a task model."""
        return encode(table, tokenizer, self.max_length, overlap=overlap, prompt=self.prompt)

    def answers(self, outputs: np.ndarray, data: Encoded) -> np.ndarray:
        """float32 (texts, width); of a text in windows, the mean of theirs."""
        found = data.examples.mean_over_windows(outputs)
        if self.unit:  # which a mean is not
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-12))
        return found


def abstain(rows: Sequence[Row], below: float) -> list[Row]:
    """Rows with `abstained`: whether the probability is under `below`, and the prediction but a guess."""
    return [row | {"abstained": row["probability"] < below} for row in rows]
