"""A static classifier with random weights, which is quick to open."""

from pathlib import Path

import numpy as np

from brimful.tasks.static import StaticModel
from builders.encoders import word_tokenizer


def save_static(folder: Path) -> None:
    """It has the labels a, b and c, knows the words w0 to w89 and reads 32 tokens."""
    shapes = (95, 8), (3, 8), (3,)
    weights = [np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in shapes]
    StaticModel(*weights, ["a", "b", "c"], word_tokenizer(), 32).save(folder)
