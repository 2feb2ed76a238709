"""Encoded tables that tests make without a tokenizer."""

from pathlib import Path

import numpy as np

from brimful.data.examples import Examples
from brimful.tasks.encoded import Encoded
from brimful.tasks.table import Table


def labelled(name: str, values: np.ndarray) -> Encoded:
    """Rows of one token each with these targets."""
    texts = ["a"] * len(values)
    ones = [np.ones(1, dtype=np.int32)] * len(values)
    types = [np.zeros(1, dtype=np.uint8)] * len(values)
    return Encoded(Table(Path("table.tsv"), texts, None, None), Examples(ones, types, {name: values}, 1, 0))
