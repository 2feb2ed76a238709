"""Labels that are rare and seldom found: what a threshold of their own changes, measured on dev."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.judging.rare import _f1, _threshold, rare_labels
from brimful.reports.finetune import rare_sentences
from brimful.tables.table import Table
from brimful.tasks.classification import WEIGHT, Classification
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.regression import Regression
from builders.encoders import word_tokenizer
from builders.tables import bits_of

TASK = Classification(["often", "rare", "usual"])


def data_of(**targets: np.ndarray) -> Encoded:
    size = len(next(iter(targets.values())))
    table = Table(Path("table.tsv"), [f"w{index}" for index in range(size)], None, None)
    return encode(table, word_tokenizer(), 16, targets=targets)


def drawn(seed: int, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and logits of a model that is right but for the rare class, whose logit is 2 too low."""
    random = np.random.default_rng(seed)
    labels = random.choice(3, n, p=[0.5, 0.06, 0.44])
    logits = random.normal(0, 0.5, (n, 3)) + 3 * np.eye(3)[labels]
    logits[:, 1] -= 2.5
    return labels, logits.astype(np.float32)


@pytest.mark.parametrize("seed", [1, 5])
def test_a_threshold_finds_more_of_a_rare_class(seed: int) -> None:
    labels, logits = drawn(seed)
    dev, train = data_of(label=labels), data_of(label=drawn(seed + 1)[0])
    (told,) = rare_labels(TASK, logits, dev, train)
    assert told["label"] == "rare"
    assert (told["dev_rows"], told["train_rows"]) == ((labels == 1).sum(), (drawn(seed + 1)[0] == 1).sum())
    assert told["recall"] == ((logits.argmax(1) == 1) & (labels == 1)).sum() / (labels == 1).sum()
    assert told["threshold_recall"] > told["recall"]
    assert told["threshold_f1"] > told["f1"]
    assert told["accuracy"] == (logits.argmax(1) == labels).mean()
    # The same threshold, on rows of another draw, keeps its promise.
    labels, logits = drawn(seed + 2, 20_000)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    more = np.where(chances[:, 1] >= told["threshold"], 1, logits.argmax(1))
    assert ((more == 1) & (labels == 1)).sum() / (labels == 1).sum() == pytest.approx(
        told["threshold_recall"], abs=0.35
    )
    assert (more == labels).mean() == pytest.approx(told["threshold_accuracy"], abs=0.05)
    (sentence,) = rare_sentences({"rare_labels": [told]})
    assert sentence.startswith("'rare' is rare:")
    assert "(predict --scores)" in sentence
    assert "--class-weights balanced was not tried" in sentence
    weighted = data_of(label=drawn(seed + 1)[0], **{WEIGHT: np.ones(600, np.float32)})
    (told,) = rare_labels(TASK, logits[:600], data_of(label=labels[:600]), weighted)
    assert not told["weights_untried"]
    assert "class-weights" not in rare_sentences({"rare_labels": [told]})[0]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12),
)
def test_no_threshold_has_a_better_f1(rows: list[tuple[bool, bool, int]]) -> None:
    """Of few probabilities, so that many are equal; against all thresholds."""
    wanted, found, chances = (np.array(values) for values in zip(*rows, strict=True))

    def f1(threshold: float) -> float:
        return _f1(wanted, found | (chances >= threshold))

    best = _threshold(wanted, found, chances)
    assert f1(best) == max(map(f1, (0, 1, 2, 3, np.inf)))


def test_what_no_threshold_helps_says_so() -> None:
    """The probabilities of the rare class are noise."""
    random = np.random.default_rng(1)
    labels, logits = drawn(1)
    logits[labels == 1, 0] += 3
    logits[:, 1] = random.normal(-4, 0.1, len(labels))
    (told,) = rare_labels(TASK, logits, data_of(label=labels), data_of(label=labels))
    assert "threshold" not in told
    assert "a threshold of its own would not pay" in rare_sentences({"rare_labels": [told]})[0]
    assert told["recall"] == 0


def test_labels_that_are_found_or_frequent_or_unmeasured_have_no_advice() -> None:
    labels, logits = drawn(1)
    right = np.eye(3, dtype=np.float32)[labels]
    assert rare_labels(TASK, right, data_of(label=labels), data_of(label=labels)) == []
    even = np.arange(600) % 3
    assert rare_labels(TASK, logits, data_of(label=labels), data_of(label=even)) == []
    few = np.flatnonzero((labels != 1) | (np.cumsum(labels == 1) <= 4))
    assert rare_labels(TASK, logits[few], data_of(label=labels[few]), data_of(label=labels)) == []
    assert rare_labels(Regression(), logits[:, :1], data_of(label=labels), data_of(label=labels)) == []


def test_labels_of_several_have_advice_without_weights() -> None:
    labels, logits = drawn(1)
    targets = bits_of(np.eye(3)[labels])
    dev, train = data_of(labels=targets), data_of(labels=targets)
    (told,) = rare_labels(MultiLabel(["often", "rare", "usual"]), logits - 0.6, dev, train)
    assert told["label"] == "rare"
    assert told["threshold_f1"] > told["f1"]
    assert "accuracy" not in told
    assert not told["weights_untried"]
