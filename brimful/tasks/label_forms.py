"""Predictions of one label, or of any number of labels, for each text or pair of texts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy import ndarray

from brimful.base.storage import readable
from brimful.base.types import Values
from brimful.tables.label_lists import read_label_lists, read_one_hot
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Table, Take, take_all
from brimful.tables.table_files import read_table, read_texts
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import PROBABILITY_DECIMALS, PredictionForm, Row


@dataclass(frozen=True)
class NamedLabels(PredictionForm):
    """The form of a task that is described by the names of its labels."""

    labels: list[str]

    @classmethod
    def from_labels(cls, labels: list[str]) -> Self:
        return cls(labels)

    @property
    def facts(self) -> Values:
        return {"labels": self.labels}


@dataclass(frozen=True)
class Classes(NamedLabels):
    """The form of classification: one of several labels, with its probability."""

    name = "classification"
    problem_type = "single_label_classification"
    abstains = True

    def best(self, answers: ndarray) -> list[tuple[str, float]]:
        """Return the most probable label of each row, and its probability."""
        probabilities = self.scores(answers)
        names = np.array(self.labels, dtype=object)[probabilities.argmax(1)]
        return list(zip(names.tolist(), probabilities.max(1).tolist(), strict=True))

    def scores(self, answers: ndarray) -> ndarray:
        """Return the probability of each class."""
        return softmax(answers)

    def rows(self, answers: ndarray, data: Encoded) -> list[Row]:
        """Return `prediction`, a label, and its `probability`."""
        rows = []
        for label, probability in self.best(answers):
            rows.append({"prediction": label, "probability": round(probability, PROBABILITY_DECIMALS)})
        return rows


@dataclass(frozen=True)
class LabelSets(NamedLabels):
    """Labels that do not exclude each other."""

    name = "multi-label"
    problem_type = "multi_label_classification"

    @classmethod
    def read(
        cls, path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = take_all
    ) -> Table:
        """Read a table whose labels are lists in one column, or columns of 0 and 1 (`label_lists`)."""
        if not labelled:
            return read_texts(path, layout, take)
        path = Path(path)
        with readable(path):
            columns = read_one_hot(path, layout)
        if columns is not None:
            return replace(read_table(path, labelled=False, layout=layout, take=take), labels=columns)
        table = read_table(path, labelled=True, lists=True, layout=layout, take=take)
        return replace(table, labels=read_label_lists(table))

    def scores(self, answers: ndarray) -> ndarray:
        """Return the probability of each label: the sigmoid of its logit."""
        with np.errstate(over="ignore"):  # exp(-x) may be infinite, and 1 / (1 + it) is 0
            return (1 / (1 + np.exp(-answers.astype(np.float64)))).astype(np.float32)

    def rows(self, answers: ndarray, data: Encoded) -> list[Row]:
        """Return `prediction`, the labels with a probability above a half, and their `probabilities`."""
        names, rows = np.array(self.labels, dtype=object), list[Row]()
        for logits, probabilities in zip(answers, self.scores(answers), strict=True):
            chosen = logits > 0
            rounded = [round(float(value), PROBABILITY_DECIMALS) for value in probabilities[chosen]]
            rows.append({"prediction": names[chosen].tolist(), "probabilities": rounded})
        return rows


def softmax(logits: ndarray) -> ndarray:
    """Return the probability of each class, float32 (n, classes), computed in float64."""
    # Less the largest, so that exp cannot overflow; -inf where there are no classes.
    weights = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True, initial=-np.inf))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)
