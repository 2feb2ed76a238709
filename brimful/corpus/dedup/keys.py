"""Compute keys of documents and their lines, and estimate their tokens, in one pass over the UTF-8 bytes.

A key is 64-bit FNV-1a of the bytes that are not whitespace, mixed by splitmix64. Among a billion texts,
expect 0.03 pairs of different texts with equal keys. Keys find duplicates; anyone can forge a text with a
given key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.randomness import mix
from brimful.corpus.text.characters import lengths_of

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
LETTERS_PER_TOKEN = 6
"""About every sixth letter or digit of an ASCII word adds a token."""


@dataclass(frozen=True)
class Keys:
    """Facts about D documents, which have L lines in all.

    Attributes:
        documents: key of each document without its whitespace, uint64 (D,).
        tokens: estimated tokens of each document, uint32 (D,).
        line_counts: lines of each document, uint32 (D,).
        lines: key of each line without its whitespace, uint64 (L,); 0 for a line that is too short.
    """

    documents: ndarray
    tokens: ndarray
    line_counts: ndarray
    lines: ndarray


def compute_keys(texts: Sequence[str], shortest_line: int) -> Keys:
    """Compute the keys of clean texts.

    Args:
        shortest_line: bytes (whitespace not counted); shorter lines get key 0.
    """
    encoded = [text.encode() for text in texts]
    data = np.frombuffer(b"\n".join([*encoded, b""]), np.uint8)
    ends = np.cumsum(lengths_of(encoded) + 1)
    documents = np.empty(len(texts), np.uint64)
    tokens = np.empty(len(texts), np.uint32)
    line_counts = np.empty(len(texts), np.uint32)
    lines = np.empty(int(np.count_nonzero(data == ord("\n"))), np.uint64)
    _scan(data, ends, documents, tokens, line_counts, lines, shortest_line)
    lines = np.where(lines == 0, lines, mix(lines))
    return Keys(mix(documents), tokens, line_counts, lines)


@compiled
def _scan(
    data: ndarray,
    ends: ndarray,
    documents: ndarray,
    tokens: ndarray,
    line_counts: ndarray,
    lines: ndarray,
    shortest_line: int,
) -> None:
    """Fill the arrays of `Keys`, before mixing. A document ends with a line break, at `ends` - 1."""
    offset, prime = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
    place = 0
    line = 0
    for document in range(len(ends)):
        whole = part = offset  # keys of the document and of the line
        size = estimate = letters = 0  # bytes of the line, tokens of the document, letters of the word
        first = line
        while place < ends[document]:
            byte = data[place]
            place += 1
            if byte > 32:
                whole = (whole ^ np.uint64(byte)) * prime
                part = (part ^ np.uint64(byte)) * prime
                size += 1
                if byte >= 224:  # the first byte of a character that takes three or more: Han, kana ...
                    estimate += 1
                    letters = 0
                # The first byte of a letter such as é or я; or 0-9, A-Z, a-z.
                elif byte >= 192 or 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122:
                    if letters % LETTERS_PER_TOKEN == 0:
                        estimate += 1
                    letters += 1
                elif byte < 128:  # punctuation
                    estimate += 1
                    letters = 0
                continue
            letters = 0
            if byte == 10:
                lines[line] = part if size >= shortest_line else np.uint64(0)
                line += 1
                part = offset
                size = 0
        documents[document] = whole
        tokens[document] = estimate
        line_counts[document] = line - first
