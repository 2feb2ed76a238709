"""Vocabularies in older files than tokenizer.json: BERT's vocab.txt, RoBERTa's vocab.json and merges.txt."""

import json
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.corpus.text.folder_classes import Vocabulary

_WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What Unicode calls white space; Python's `str.rstrip` also takes the separators U+001C to U+001F."""


def read_vocabulary(file: Path) -> Vocabulary:
    """Pieces and ids of a vocab.txt, or of a vocab.json with the merges.txt beside it.

    Raises:
        BrimfulError: a file is missing or cannot be read.
    """
    if file.suffix == ".txt":
        return Vocabulary(read_pieces(file))
    if file.suffix == ".json":
        return Vocabulary(_numbered(file), _merges(file))
    raise BrimfulError(f"no vocabulary at {file}: copy the files of the tokenizer there")


def read_pieces(file: Path) -> dict[str, int]:
    """A vocab.txt: the piece of line n has id n, counted from 0. Of equal pieces the last one counts."""
    lines = _text(file).split("\n")
    if not lines[-1]:
        del lines[-1]
    return {line.rstrip(_WHITE_SPACE): number for number, line in enumerate(lines)}


def _numbered(file: Path) -> dict[str, int]:
    try:
        value = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise BrimfulError(f"cannot read the vocabulary {file}: it is not JSON") from error
    if not isinstance(value, dict) or not all(type(index) is int for index in value.values()):
        raise BrimfulError(f"{file} is not a JSON object of pieces and their ids")
    return value


def _merges(file: Path) -> list[tuple[str, str]]:
    """The merges.txt beside a vocab.json."""
    path = file.with_name("merges.txt")
    if not path.is_file():
        raise BrimfulError(f"{file} needs its merges.txt beside it")
    merges = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or line.startswith("#version"):
            continue
        pair = line.split(" ")
        if len(pair) != 2:
            raise BrimfulError(f"{path}, line {number}: {line!r:.60} is not two pieces with a space between")
        merges.append((pair[0], pair[1]))
    return merges


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BrimfulError(f"cannot read the vocabulary {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise BrimfulError(f"cannot read the vocabulary {file}: it is not UTF-8") from error
