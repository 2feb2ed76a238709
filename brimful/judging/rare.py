"""Labels that are rare in train and seldom found on dev, and what a threshold of their own changes there."""

from typing import Any

import numpy as np

from brimful.judging.analysis import deal_folds
from brimful.tasks.classes import DIGITS
from brimful.tasks.classification import WEIGHT, Classification
from brimful.tasks.encoded import Encoded
from brimful.tasks.multi_label import MultiLabel, label_sets
from brimful.tasks.task import Task

RARE = 0.5
"""A label is rare with fewer rows of train than this part of an even share."""
SELDOM = 0.75
"""It is seldom found if its recall is below this part of the recall over all labels."""
LEAST_RIGHT = 0.25
"""Of the further rows that a threshold gives a label to, what must have it: one in four."""
FEWEST = 5
"""Dev rows of a label from which its recall is judged."""


def rare_labels(task: Task, answers: np.ndarray, dev: Encoded, train: Encoded) -> list[dict[str, Any]]:
    """The rare labels of a classification or multi-label task, those that are found least first.

    A threshold gives a label to further rows: those where its probability is at least so high. It is the one
    with the best F1 on dev. What it changes is measured by five folds of dev, each with the threshold that is
    best on the others.

    Args:
        answers: for dev, of a model that did not train on it; calibrated, as predictions are.

    Returns:
        of each label its `label`, `train_rows`, `dev_rows`, `recall` and `f1` on dev; where a threshold
        pays also `threshold`, `threshold_recall`, `threshold_f1`, and of classes `accuracy` and
        `threshold_accuracy`; `weights_untried`: whether --class-weights balanced is for this task and was
        not set.
    """
    if not isinstance(task, Classification | MultiLabel):
        return []
    wanted, rows = _labels(task, dev), _counts(task, train)
    classes = isinstance(task, Classification)
    found = answers.argmax(1)[:, None] == np.arange(len(task.labels)) if classes else answers > 0
    support, hits = wanted.sum(0), (wanted & found).sum(0)
    recall = hits / np.maximum(support, 1)
    seldom = recall < SELDOM * hits.sum() / max(support.sum(), 1)
    rare = (rows < RARE * rows.sum() / len(rows)) & (support >= FEWEST) & seldom
    chances = np.floor(task.scores(answers).astype(np.float64) * 10**DIGITS) / 10**DIGITS  # as thresholds are
    folds = deal_folds(dev.table.groups())
    right, told = (wanted & found).any(1), []
    for label in sorted(np.flatnonzero(rare).tolist(), key=lambda label: (recall[label], rows[label])):
        ours, theirs = wanted[:, label], found[:, label]
        before = _f1(ours, theirs)
        record: dict[str, Any] = {
            "label": task.labels[label],
            "train_rows": int(rows[label]),
            "dev_rows": int(support[label]),
            "recall": float(recall[label]),
            "f1": before,
        }
        more = theirs.copy()
        for fold in np.unique(folds):
            inside, outside = folds == fold, folds != fold
            limit = _threshold(ours[outside], theirs[outside], chances[outside, label])
            more[inside] |= chances[inside, label] >= limit
        threshold = _threshold(ours, theirs, chances[:, label])
        further = more & ~theirs
        pays = _f1(ours, more) > before and (ours & further).sum() >= LEAST_RIGHT * further.sum()
        if pays and threshold < np.inf:
            record |= {
                "threshold": threshold,
                "threshold_recall": float((ours & more).sum() / support[label]),
                "threshold_f1": _f1(ours, more),
            }
            if classes:
                record |= {
                    "accuracy": float(right.mean()),
                    "threshold_accuracy": float(np.where(more, ours, right).mean()),
                }
        told.append(record | {"weights_untried": classes and WEIGHT not in train.targets})
    return told


def _labels(task: Task, data: Encoded) -> np.ndarray:
    """bool (n, labels), which labels each row has."""
    if isinstance(task, Classification):
        return data.targets["label"][:, None] == np.arange(len(task.labels))
    return label_sets(data.targets["labels"], len(task.labels))


def _counts(task: Task, data: Encoded) -> np.ndarray:
    """int64 (labels,), the rows that have each label: of bits, without the matrix."""
    if isinstance(task, Classification):
        return np.bincount(data.targets["label"], minlength=len(task.labels))
    bits = [((data.targets["labels"] >> place) & 1).sum(0) for place in range(7, -1, -1)]
    return np.stack(bits, 1).ravel()[1 : 1 + len(task.labels)]


def _f1(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(2 * (wanted & found).sum() / max(wanted.sum() + found.sum(), 1))


def _threshold(wanted: np.ndarray, found: np.ndarray, chances: np.ndarray) -> float:
    """The probability from which giving the label to further rows has the best F1; the highest of several,
    and infinity where none is better than no further rows."""
    order = np.argsort(-chances, kind="stable")
    ordered = chances[order]
    further = ~found[order]
    hits = (wanted & found).sum() + np.cumsum(wanted[order] & further)
    scores = 2 * hits / (wanted.sum() + found.sum() + np.cumsum(further))
    last = np.append(ordered[1:] != ordered[:-1], True)  # rows of equal probability go together
    best = int(np.where(last, scores, -1.0).argmax())
    better = scores[best] > _f1(wanted, found)
    return float(ordered[best]) if better else float("inf")
