"""Predictions of one of several labels for each text or pair of texts."""

from dataclasses import dataclass

import numpy as np

from brimful.tasks.encoded import Encoded
from brimful.tasks.form import NamedLabels, Row

DIGITS = 6
"""Decimals of the probabilities that are written, and of the thresholds that they are compared with."""


@dataclass(frozen=True)
class Classes(NamedLabels):
    """Classes with names."""

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
        weights = np.exp(answers.astype(np.float64) - answers.max(1, keepdims=True, initial=-np.inf))
        return (weights / weights.sum(1, keepdims=True)).astype(np.float32)

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`prediction`, a label, and its `probability`."""
        best = self.best(answers)
        return [{"prediction": label, "probability": round(value, DIGITS)} for label, value in best]


FORM = Classes
