"""Predictions of any number of labels for each text or pair of texts."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brimful.tables.label_lists import read_label_lists, read_one_hot
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Table, Take, take_all
from brimful.tables.table_files import read_table, read_texts
from brimful.tables.text_files import readable
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import PROBABILITY_DECIMALS, NamedLabels, Row


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

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """Return the probability of each label: the sigmoid of its logit."""
        with np.errstate(over="ignore"):  # exp(-x) may be infinite, and 1 / (1 + it) is 0
            return (1 / (1 + np.exp(-answers.astype(np.float64)))).astype(np.float32)

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """Return `prediction`, the labels with a probability above a half, and their `probabilities`."""
        names, rows = np.array(self.labels, dtype=object), list[Row]()
        for logits, probabilities in zip(answers, self.scores(answers), strict=True):
            chosen = logits > 0
            rounded = [round(float(value), PROBABILITY_DECIMALS) for value in probabilities[chosen]]
            rows.append({"prediction": names[chosen].tolist(), "probabilities": rounded})
        return rows
