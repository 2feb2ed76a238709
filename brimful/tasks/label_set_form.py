"""Predictions of any number of labels for each text or pair of texts."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brimful.tables.label_lists import names_of_rows, one_hot
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Table, Take, take_all
from brimful.tables.table_files import read_table, read_texts
from brimful.tables.text_files import readable
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import NamedLabels, Row


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
            columns = one_hot(path, layout)
        if columns is not None:
            return replace(read_table(path, labelled=False, layout=layout, take=take), labels=columns)
        table = read_table(path, labelled=True, lists=True, layout=layout, take=take)
        return replace(table, labels=names_of_rows(table))

    def found(self, answers: np.ndarray) -> tuple[list[list[str]], np.ndarray]:
        """The labels of each row with a probability above a half, and all probabilities."""
        probabilities = self.scores(answers)
        names = np.array(self.labels, dtype=object)
        return [names[row > 0].tolist() for row in answers], probabilities

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """The probability of each label."""
        with np.errstate(over="ignore"):  # exp(-x) may be infinite, and 1 / (1 + it) is 0
            return (1 / (1 + np.exp(-answers.astype(np.float64)))).astype(np.float32)

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`prediction`, a list of labels, and the `probabilities` of those."""
        names, probabilities = self.found(answers)
        return [
            {"prediction": found, "probabilities": [round(float(p), 6) for p in each[logits > 0]]}
            for found, each, logits in zip(names, probabilities, answers, strict=True)
        ]
