"""The form of predictions: all that a verb needs to know of a task to predict with a trained model.

    read        a file -> a Table
    encode      a table -> its examples: one a text, or several windows of a long one
    the model   examples -> outputs, one for each sequence or each token
    answers     outputs -> one answer for each row of the table, from all windows of its text
    rows, scores    answers -> files of predictions

Nothing here imports torch: outputs are arrays, whatever has computed them. The defaults are for one
prediction for each text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.data.ragged import Ragged
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded

PROBABILITY_DECIMALS = 6
"""Decimals of the probabilities that are written, and of the thresholds that they are compared with."""
Outputs = np.ndarray | Ragged
"""A head's outputs for n examples, float32: (n, C) of sequences, ragged (tokens, C) of tokens."""
Row = dict[str, Any]
"""One row of a file of predictions: values by column."""


class PredictionForm(Protocol):
    """What a trained task's outputs say of texts, and how that is written."""

    name: ClassVar[str]
    """What `--task` calls it. So does the term of its loss: `loss.NAME` in metrics.jsonl."""
    problem_type: ClassVar[str]
    """What config.json calls it. A model folder names its task by it, so no two tasks have the same.
    `transformers` takes its own three as the names of losses; another one has no loss there."""

    read: ClassVar[Callable[..., Table] | None] = None
    """`read(path, *, labelled, layout, take)` -> a Table. None: its files are tables of texts or pairs, with
    labels as texts. `table_files.read_file` reads the files of any task and gives the arguments."""

    characters: ClassVar[bool] = False
    """Whether its examples know the characters of each token."""

    abstains: ClassVar[bool] = False
    """Whether a row of predictions has a probability, under which its label can be left out."""

    labels: list[str]
    """Names of the head's outputs, as config.json stores them. With `settings`, they are all that a trained
    task knows: `from_labels` makes it again from them. A property or a class attribute will do."""

    @classmethod
    def from_texts(cls, texts: list[str], second: list[str] | None) -> Table:
        """The table of texts, or pairs of texts, that are in no file."""
        return Table(Path("texts"), texts, second, None)

    @classmethod
    def from_labels(cls, labels: list[str]) -> Self:
        """The task of a trained model, whose config.json gives these names to its outputs."""
        return cls()

    @property
    def settings(self) -> dict[str, Any]:
        """What config.json keeps of the task beside its labels, as JSON."""
        return {}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """The task of a trained model, whose config.json has these settings; empty if it has none."""
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """What summary.json says of the task beside its name."""
        return {}

    def answers(self, outputs: Outputs, data: Encoded) -> Any:
        """One answer for each row of the table, from the outputs of all its windows; by default their mean,
        (rows, C)."""
        assert isinstance(outputs, np.ndarray)
        return data.examples.mean_over_windows(outputs)

    def rows(self, answers: Any, data: Encoded) -> list[Row]:
        """What `brimful predict` writes for each text: its `prediction`, and what else is known. An exported
        model gives the head's outputs instead."""

    def scores(self, answers: Any) -> np.ndarray:
        """What `brimful predict --scores` writes for each text: a number for each of `labels`, float32
        (rows, C).

        Raises:
            BrimfulError: the task has no such numbers.
        """
        raise BrimfulError(
            f"a model of {self.name} has no scores of whole texts, which --scores and .npy hold"
        )


@dataclass(frozen=True)
class NamedLabels(PredictionForm):
    """The form of a task that knows no more than the names of its labels."""

    labels: list[str]

    @classmethod
    def from_labels(cls, labels: list[str]) -> Self:
        return cls(labels)

    @property
    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels}


@dataclass(frozen=True)
class Classes(NamedLabels):
    """One of several labels, with its probability: the form of classification."""

    name = "classification"
    problem_type = "single_label_classification"
    abstains = True

    def best(self, answers: np.ndarray) -> list[tuple[str, float]]:
        """The most probable label of each row, and its probability."""
        probabilities = self.scores(answers)
        names = [self.labels[index] for index in probabilities.argmax(1).tolist()]
        return list(zip(names, probabilities.max(1).tolist(), strict=True))

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """The probability of each class."""
        return probabilities(answers)

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`prediction`, a label, and its `probability`."""
        best = self.best(answers)
        digits = PROBABILITY_DECIMALS
        return [{"prediction": label, "probability": round(value, digits)} for label, value in best]


@dataclass(frozen=True)
class Numbers(PredictionForm):
    """A number for each text: the form of regression."""

    name = "regression"
    problem_type = "regression"
    labels = ["LABEL_0"]  # noqa: RUF012

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """The value."""
        return answers

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`prediction`, a number."""
        return [{"prediction": value} for value in answers[:, 0].tolist()]


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The probability of each class, float32 (n, classes)."""
    weights = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True, initial=-np.inf))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def predict_rows(task: PredictionForm, answers: Any, data: Encoded, *, scores: bool = False) -> list[Row]:
    """The task's rows of answers, with the column `scores` if that is wanted."""
    rows = task.rows(answers, data)
    if not scores:
        return rows
    each = zip(rows, task.scores(answers).tolist(), strict=True)
    return [row | {"scores": dict(zip(task.labels, values, strict=True))} for row, values in each]
