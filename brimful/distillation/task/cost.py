"""What the students of a task take, counted from shapes and lengths before their training starts."""

import numpy as np

from brimful.distillation.material import Material
from brimful.distillation.task.config import DistilConfig
from brimful.model.flops import Shape, step_flops
from brimful.model.shape import EncoderConfig


def share_of_labels(config: DistilConfig, material: Material, student: EncoderConfig, epochs: float) -> float:
    """The operations of the students that learn from the labels alone, as a proportion of those of the
    distillation: its teachers' outputs, and the stages of its students.

    Teachers are counted even where their outputs are in the cache, so that a resumed run decides alike.

    Args:
        student: its shape.
        epochs: passes over the training table.
    """
    lengths = np.concatenate([part.examples.lengths for part in material.parts])
    ours, teachers = _step(student, lengths), material.sources.teachers
    outputs = sum(_step(teacher.model.encoder.config, lengths) / 3 for teacher in teachers)
    each = config.logits.epochs * ours
    if material.imitated is not None:
        theirs = _step(material.imitated.model.encoder.config, lengths) / 3
        each += config.layers.epochs * (ours + theirs)
    whole = outputs + len(config.seeds) * each
    alone = len(config.seeds) * epochs * _step(student, material.data.train.examples.lengths)
    return alone / whole if whole else float("inf")


def _step(shape: EncoderConfig, lengths: np.ndarray) -> float:
    """Operations of forward and backward over sequences of these lengths; forward alone takes a third."""
    found, counts = np.unique(lengths, return_counts=True)
    each = (step_flops(shape, Shape((int(length),), 0)) for length in found)
    return float(sum(int(n) * flops for n, flops in zip(counts, each, strict=True)))
