"""Texts written by hand, in files beside the tests that read them.

Each record is a line of `====` with its name, what is given, a line of `----`, and what is right.
"""

from pathlib import Path
from typing import Any

import pytest


def read_named_records(path: Path) -> dict[str, tuple[str, str]]:
    """What is given and what is right, by names that differ."""
    return {name: (given, right) for name, given, right in _split(path)}


def read_records(path: Path) -> list[Any]:
    """What is given and what is right, as parameters of a test; the names may say a kind each."""
    return [
        pytest.param(given, right, id=f"{name} {i}") for i, (name, given, right) in enumerate(_split(path))
    ]


def read_lines(path: Path) -> dict[str, str]:
    """Texts by their names, after a first line that says what they are: `name: text` each."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return dict(line.split(": ", 1) for line in lines)


def _split(path: Path) -> list[tuple[str, str, str]]:
    records = []
    for record in path.read_text(encoding="utf-8").split("\n==== ")[1:]:
        name, _, body = record.partition("\n")
        given, _, right = body.partition("\n----\n")
        records.append((name, given, right.rstrip("\n")))
    return records
