"""Find duplicates across the corpus: equal documents, near duplicates, lines that recur in many documents.

Every decision depends on earlier documents only: the first of equal documents stays, and the first few
documents with a line keep it. So text that is added later never changes an earlier decision.

Near duplicates are found by MinHash (Broder, 1997) with banding (Leskovec et al., Mining of Massive Datasets,
3.4): two documents are near duplicates if all 8 hashes of any of 14 bands agree. With a Jaccard similarity s
this happens with probability 1 - (1 - s^8)^14, which is one half near s = 0.72.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError
from brimful.base.storage import temporary_path

BANDS, BAND_HASHES = 14, 8
SHINGLE_WORDS = 5
SHINGLE_CHARACTERS = 8
MAX_SORTED_RECORDS = 1 << 23
"""The most records that are sorted in memory at once."""
LINE_BYTES = 16
"""Shorter lines always stay (UTF-8 bytes without whitespace)."""

RECORD = np.dtype([("key", "<u8"), ("place", "<u8")])


@dataclass(frozen=True, kw_only=True)
class DedupConfig:
    """Which duplicates across the corpus are dropped."""

    documents: bool = True
    """Keep only the first of documents that differ in whitespace at most."""
    near: bool = False
    """Drop a document that is almost the same as an earlier one (MinHash; needs rensa)."""
    lines: int = 10
    """Keep a line (navigation, legal footers) of 16 bytes or more only in the first N documents that have it;
    0 = off."""

    def __post_init__(self) -> None:
        if self.lines < 0:
            raise BrimfulError("dedup.lines must be 0 or more")


def by_key(parts: Iterable[ndarray], total: int, scratch: Path) -> Iterator[ndarray]:
    """Yield records in arrays sorted by key, then by place; records of equal keys are in one array.

    Up to `MAX_SORTED_RECORDS` records are sorted in memory. More are first distributed among files in
    `scratch` by the highest bits of their keys.

    Args:
        parts: RECORD arrays in ascending order of place.
        total: the number of records.
    """
    bits = ((max(total, 1) - 1) // MAX_SORTED_RECORDS).bit_length()
    if bits == 0:
        yield _sorted(np.concatenate([np.empty(0, RECORD), *parts]))
        return
    folder = temporary_path(scratch / "partitions")
    folder.mkdir(0o700)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        paths = [folder / str(number) for number in range(1 << bits)]
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        for part in parts:
            bucket = part["key"] >> np.uint64(64 - bits)
            order = np.argsort(bucket, kind="stable")
            ends = np.searchsorted(bucket[order], np.arange(len(files)), side="right")
            begin = 0
            for file, end in zip(files, ends.tolist(), strict=True):
                part[order[begin:end]].tofile(file)
                begin = end
        for file, path in zip(files, paths, strict=True):
            file.close()
            yield _sorted(np.fromfile(path, RECORD))
            path.unlink()


def _sorted(records: ndarray) -> ndarray:
    return records[np.argsort(records["key"], kind="stable")]


def _starts(values: ndarray) -> ndarray:
    """Return where a value differs from the one before, bool (n,)."""
    starts = np.ones(len(values), bool)
    starts[1:] = values[1:] != values[:-1]
    return starts


def find_duplicates(parts: Iterable[ndarray], total: int, scratch: Path) -> Iterator[ndarray]:
    """Yield the places of records whose keys occur at an earlier place, uint64 (places,).

    All parts are read before the first places come.
    """
    for records in by_key(parts, total, scratch):
        yield records["place"][~_starts(records["key"])]


def find_recurring(
    parts: Iterable[ndarray], total: int, scratch: Path, begins: ndarray, max_documents: int
) -> Iterator[ndarray]:
    """Yield the lines that at least `max_documents` earlier documents have, uint64 (lines,).

    Args:
        parts: RECORD arrays whose places number lines.
        begins: the first line of each document, int64 (documents,).
    """
    for records in by_key(parts, total, scratch):
        group = _starts(records["key"])
        document = np.searchsorted(begins, records["place"].astype(np.int64), side="right")
        # Earlier documents with the line: a running count, minus its value where the line's group starts.
        rank = np.cumsum(group | _starts(document))
        first = np.flatnonzero(group)
        rank -= np.repeat(rank[first], np.diff(np.append(first, len(rank))))
        yield records["place"][rank >= max_documents]


class NearKeys:
    """Computes the MinHash bands of texts.

    Raises:
        BrimfulError: rensa is not installed.
    """

    def __init__(self) -> None:
        require_packages("dedup.near", "rensa")
        from rensa import RMinHash

        self._minhash: Any = RMinHash

    def __call__(self, texts: Sequence[str]) -> ndarray:
        """Return one key for each band, uint64 (texts, BANDS)."""
        from brimful.corpus.dedup.near_pairs import fold

        bands = np.empty((len(texts), BANDS, BAND_HASHES), np.uint32)
        for number, text in enumerate(texts):
            minhash = self._minhash(num_perm=BANDS * BAND_HASHES, seed=0)
            minhash.update(shingles(text))
            bands[number] = np.array(minhash.digest(), np.uint32).reshape(BANDS, BAND_HASHES)
        return fold(bands)


def shingles(text: str) -> list[str]:
    """Return overlapping runs of five words, or of eight characters in text with few spaces (Chinese)."""
    words, separator, size = text.split(), " ", SHINGLE_WORDS
    if len(words) * SHINGLE_CHARACTERS < len(text):
        words, separator, size = list("".join(words)), "", SHINGLE_CHARACTERS
    count = max(1, len(words) - size + 1)
    return [separator.join(words[begin : begin + size]) for begin in range(count)]
