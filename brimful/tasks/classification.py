"""Classification: one of several labels for each text or pair of texts."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import Numbers
from brimful.data.batch import PackedBatch
from brimful.model.cross_entropy import count_hits, cross_entropy_sum
from brimful.objectives.losses import make_class_imitation
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded, Targets
from brimful.tasks.label_forms import Classes
from brimful.tasks.prediction_form import Row
from brimful.tasks.task import Metric, RowsMetric, Task


def list_label_names(table: Table) -> list[str]:
    """Return the labels of a table, sorted, numbers by value. Fewer than two are a BrimfulError."""
    assert table.labels is not None
    names = sorted(set(table.labels))
    if len(names) < 2:
        raise BrimfulError(f"{table.path} has a single label, {names[0]!r}; classification needs two or more")
    if all(re.fullmatch(r"-?\d+(\.\d+)?", name) for name in names):
        names.sort(key=float)
    return names


@dataclass(frozen=True)
class Classification(Classes, Task):
    """Classes with names; the loss is the cross-entropy."""

    metrics = (
        Metric("accuracy", "accuracy", percent=True),
        Metric("f1", "F1", percent=True),
        Metric("matthews", "Matthews correlation"),
        Metric("positive_f1", "F1 of the second of two classes", percent=True),
    )
    by_row = True
    watched = ("accuracy",)
    calibrates = True
    imitation = staticmethod(make_class_imitation)

    def __post_init__(self) -> None:
        if len(self.labels) != 2:  # the last metric needs a positive class; tasks are frozen dataclasses
            object.__setattr__(self, "metrics", self.metrics[:-1])

    @classmethod
    def from_table(cls, table: Table) -> Self:
        return cls(list_label_names(table))

    @property
    def description(self) -> str:
        return f"{len(self.labels)} classes ({', '.join(self.labels[:8])})"

    def targets(self, table: Table) -> Targets:
        """Return `label`, int64 (n,): an index into `labels`."""
        index = {name: i for i, name in enumerate(self.labels)}
        labels = np.empty(len(table), dtype=np.int64)  # filled row by row: labels may lie in a file
        for row, label in enumerate(table.labels or ()):
            labels[row] = table.label_index(row, label, index)
        return {"label": labels}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        labels = batch.targets["label"]
        return {self.name: cross_entropy_sum(outputs, labels), "accuracy": count_hits(outputs, labels)}

    def measure(self, answers: ndarray, data: Encoded) -> Numbers:
        """Return the metrics, n, and the mean cross-entropy as `loss`. F1 is averaged over the classes that
        are a label or a prediction of any row, as in scikit-learn."""
        labels = data.targets["label"]
        loss = cross_entropy_sum(torch.from_numpy(answers), torch.from_numpy(labels)) / len(labels)
        return self._count_metrics(answers.argmax(1), labels) | {"n": len(labels), "loss": float(loss)}

    def make_primary(self, answers: ndarray, data: Encoded) -> RowsMetric:
        predicted, labels, name = answers.argmax(1), data.targets["label"], self.metrics[0].name
        return lambda rows: self._count_metrics(predicted[rows], labels[rows])[name]

    def _count_metrics(self, predicted: ndarray, labels: ndarray) -> Numbers:
        """The metrics that follow from how often each class is a label, a prediction, and both."""
        # Never from a matrix of labels and predictions, which would take 800 MB for 10,000 classes.
        classes = len(self.labels)
        guessed = np.bincount(predicted, minlength=classes)
        labelled = np.bincount(labels, minlength=classes)
        right = np.bincount(labels[predicted == labels], minlength=classes)
        either = guessed + labelled
        f1 = 2 * right / np.maximum(either, 1)
        metrics = {
            "accuracy": float(right.sum() / len(labels)),
            "f1": float(f1[either > 0].mean()),
            "matthews": _correlate(guessed.astype(float), labelled.astype(float), right.astype(float)),
        }
        if classes == 2:
            metrics["positive_f1"] = float(f1[1])
        return metrics

    def compare_rows(self, answers: ndarray, data: Encoded) -> list[Row]:
        """Return `gold`, `prediction`, and the `probability` of the prediction."""
        rows = []
        for label, (guess, probability) in zip(data.targets["label"], self.best(answers), strict=True):
            rows.append({"gold": self.labels[label], "prediction": guess, "probability": probability})
        return rows


def _correlate(predicted: ndarray, labelled: ndarray, right: ndarray) -> float:
    """The correlation of labels and predictions (Gorodkin, 2004; for two classes: Matthews, 1975), from how
    many rows have each class, float64 (classes,); 0 if all labels or all predictions are the same."""
    n = labelled.sum()
    covariance = right.sum() * n - labelled @ predicted
    spread = (n**2 - labelled @ labelled) * (n**2 - predicted @ predicted)
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0
