"""Encoded tables that tests make without a tokenizer."""

from pathlib import Path

import numpy as np

from brimful.data.examples import Examples
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_files import open_output
from brimful.tasks.prediction_form import Row


def encoded(examples: Examples) -> Encoded:
    """A table of these examples, whose texts do not matter."""
    return Encoded(Table(Path("table.tsv"), ["a"] * len(examples), None, None), examples)


def labelled(name: str, values: np.ndarray) -> Encoded:
    """Rows of one token each with these targets."""
    ones = [np.ones(1, dtype=np.int32)] * len(values)
    types = [np.zeros(1, dtype=np.uint8)] * len(values)
    return encoded(Examples(ones, types, {name: values}, 1, 0))


def bits_of(wanted: np.ndarray) -> np.ndarray:
    """Sets of labels, (n, labels), as the bits of targets; the first says that there is one."""
    return np.packbits(np.pad(wanted > 0, ((0, 0), (1, 0)), constant_values=True), axis=1)


def write_rows(path: Path, rows: list[Row]) -> None:
    with open_output(path, len(rows)) as output:
        output.write_rows(rows)
