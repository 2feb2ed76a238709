"""Predictions of a number for each text or pair of texts."""

from dataclasses import dataclass

import numpy as np

from brimful.tasks.encoded import Encoded
from brimful.tasks.form import PredictionForm, Row


@dataclass(frozen=True)
class Numbers(PredictionForm):
    """One value."""

    name = "regression"
    problem_type = "regression"
    labels = ["LABEL_0"]  # noqa: RUF012

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """The value."""
        return answers

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`prediction`, a number."""
        return [{"prediction": value} for value in answers[:, 0].tolist()]


FORM = Numbers
