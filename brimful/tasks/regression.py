"""Regression: a number for each text or pair of texts, such as a rating or a similarity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy import ndarray
from scipy import stats
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead
from brimful.objectives.losses import Imitation, require_no_temperature, squared_error_sum
from brimful.precision.policy import widen
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded, Targets
from brimful.tasks.prediction_form import Numbers, Row
from brimful.tasks.task import Metric, RowsMetric, Task


@dataclass(frozen=True)
class Regression(Numbers, Task):
    """One value; the loss is the squared error in units of the labels' deviation, from their mean. So neither
    the unit of the labels nor an offset changes the trained model."""

    mean: float = 0.0
    deviation: float = 1.0
    metrics = (
        Metric("pearson", "Pearson correlation"),
        Metric("spearman", "Spearman correlation"),
        Metric("mse", "mean squared error", best="lowest"),
    )
    by_row = True
    description = "one value"

    @classmethod
    def from_table(cls, table: Table) -> Self:
        values = table.numbers().astype(np.float64)
        return cls(float(values.mean()), float(values.std()) or 1.0)  # of equal values the deviation is 0

    def new_head(self, encoder: Encoder) -> SequenceHead:
        head = SequenceHead(encoder, 1)
        # The head computes in units of the deviation. `fold` puts them into its weights.
        head.unit, head.zero = self.deviation, self.mean
        return head

    def targets(self, table: Table) -> Targets:
        values = table.numbers()
        if np.ptp(values) == 0:
            raise BrimfulError(
                f"{table.path}: all labels are {values[0]:g}; a correlation needs at least two values"
            )
        return {"label": values}

    def strata(self, table: Table) -> Sequence[object]:
        """Return the tenth of the values that each row is in."""
        values = table.numbers()
        return np.searchsorted(np.quantile(values, np.linspace(0.1, 0.9, 9)), values, side="right").tolist()

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        return {self.name: self.imitation(1.0)(outputs[:, 0], batch.targets["label"])}

    def imitation(self, temperature: float) -> Imitation:
        require_no_temperature(temperature, "a value has no temperature")
        scale = self.deviation
        return lambda ours, theirs: squared_error_sum(widen(ours) / scale, theirs / scale)

    def measure(self, answers: ndarray, data: Encoded) -> dict[str, float]:
        """Return the metrics and n. Predictions, or labels, that are all equal have a correlation of 0."""
        return self._measure_values(answers, data.targets["label"])

    def make_primary(self, answers: ndarray, data: Encoded) -> RowsMetric:
        labels, name = data.targets["label"], self.metrics[0].name
        return lambda rows: self._measure_values(answers[rows], labels[rows])[name]

    def _measure_values(self, answers: ndarray, labels: ndarray) -> dict[str, float]:
        values, labels = answers[:, 0].astype(np.float64), labels.astype(np.float64)
        pearson = spearman = 0.0
        if np.ptp(values) > 0 and np.ptp(labels) > 0:
            pearson = float(stats.pearsonr(values, labels).statistic)
            spearman = float(stats.spearmanr(values, labels).statistic)
        mse = float(np.square(values - labels).mean())
        return {"pearson": pearson, "spearman": spearman, "mse": mse, "n": len(labels)}

    def compare_rows(self, answers: ndarray, data: Encoded) -> list[Row]:
        pairs = zip(data.targets["label"].tolist(), answers[:, 0].tolist(), strict=True)
        return [{"gold": gold, "prediction": value} for gold, value in pairs]
