"""Decide for each clean document and line whether it is kept or dropped as a duplicate of earlier ones.

    dedup/NAME.fates      an index into DECISIONS for each document of the text part NAME, uint8
    dedup/NAME.dropped    a bit for each line of the part: 1 if it is dropped
    dedup/decisions.json  the commit record of all these files

This stage needs the whole corpus, so one process does it. Each decision depends on earlier documents only, so
text that is added later changes no decision.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy import ndarray

from brimful.base.config import config_hash
from brimful.base.storage import Record, atomic_files, commit, make_write_error
from brimful.base.types import Values
from brimful.corpus.dedup.duplicates import RECORD, DedupConfig, find_duplicates, find_recurring
from brimful.corpus.pipeline.text_parts import TextPart, find_made
from brimful.corpus.shards import map_file, read_bits

DECISIONS = ("kept", "duplicate", "near duplicate")
DECISIONS_FILE = "decisions.json"
RULES = 1
"""Raise this with every change of a decision: decisions of an earlier version are then made again."""


def decide(directory: Path, texts: Sequence[Values], config: DedupConfig) -> Values:
    """Decide for the whole corpus, unless the decisions exist; return their commit record.

    Args:
        texts: the commit records of all text parts.

    Raises:
        BrimfulError: the folder cannot be written.
    """
    folder = directory / "dedup"
    record = folder / DECISIONS_FILE
    files = [text["files"] for text in texts]
    hash_of_inputs = config_hash({"rules": RULES, "dedup": asdict(config), "texts": files})
    made = find_made(record, Record, True, config_hash=hash_of_inputs)
    if made:
        return made
    parts = [TextPart(directory, text["name"]) for text in texts]
    try:
        decisions = _decide_documents(parts, config, folder)
        dropped = _decide_lines(parts, config, folder, decisions)
    except OSError as error:  # numpy's errors lack the file name, and the errno of a full disk
        raise make_write_error(folder, error) from error
    contents = {}
    # Divide the decisions among the files of each part, which begins at `document` and `line`.
    document = line = 0
    for part in parts:
        end, line_end = document + len(part.documents), line + int(part.documents["lines"].sum())
        contents[folder / f"{part.name}.fates"] = decisions[document:end]
        contents[folder / f"{part.name}.dropped"] = np.packbits(dropped[line:line_end], bitorder="little")
        document, line = end, line_end
    with atomic_files(record, list(contents)) as temporaries:
        for temporary, values in zip(temporaries, contents.values(), strict=True):
            temporary.write_bytes(values.tobytes())
    return commit(record, contents, config_hash=hash_of_inputs)


def _decide_documents(parts: Sequence[TextPart], config: DedupConfig, scratch: Path) -> ndarray:
    """Return the decision on each document, uint8 (documents,)."""
    total = sum(len(part.documents) for part in parts)
    decisions = np.zeros(total, np.uint8)
    if config.documents:
        for places in find_duplicates(_document_records(parts), total, scratch):
            decisions[places] = DECISIONS.index("duplicate")
    # A document that is already dropped must not cause a near duplicate of it to be dropped.
    if config.near:
        keys = sum(part.bands.size for part in parts)
        for places in find_duplicates(_band_records(parts, decisions), keys, scratch):
            decisions[places] = DECISIONS.index("near duplicate")
    return decisions


def _decide_lines(
    parts: Sequence[TextPart], config: DedupConfig, scratch: Path, decisions: ndarray
) -> ndarray:
    """Return which lines are dropped, bool (lines,); all False if recurring lines stay."""
    counts = np.concatenate([np.empty(0, np.uint32), *(part.documents["lines"] for part in parts)])
    ends = np.cumsum(counts, dtype=np.int64)
    dropped = np.zeros(int(counts.sum()), bool)
    if config.lines:
        eligible = (decisions == 0) & (counts > 1)  # whole documents are compared above
        records = _line_records(parts, np.repeat(eligible, counts))
        for lines in find_recurring(records, len(dropped), scratch, ends - counts, config.lines):
            dropped[lines] = True
    return dropped


# Each of these yields RECORD arrays, a part at a time. `begin` is the first document or line of the part.
def _document_records(parts: Sequence[TextPart]) -> Iterator[ndarray]:
    begin = 0
    for part in parts:
        yield _records(part.documents["key"], begin + np.arange(len(part.documents)))
        begin += len(part.documents)


def _band_records(parts: Sequence[TextPart], decisions: ndarray) -> Iterator[ndarray]:
    begin = 0
    for part in parts:
        remaining = np.flatnonzero(decisions[begin : begin + len(part.documents)] == 0)
        bands = part.bands[remaining]  # (documents, BANDS)
        yield _records(bands.reshape(-1), np.repeat(begin + remaining, bands.shape[1]))
        begin += len(part.documents)


def _line_records(parts: Sequence[TextPart], eligible: ndarray) -> Iterator[ndarray]:
    begin = 0
    for part in parts:
        # Lines too short to be compared have the key 0.
        chosen = np.flatnonzero(eligible[begin : begin + len(part.lines)] & (part.lines != 0))
        yield _records(part.lines[chosen], begin + chosen)
        begin += len(part.lines)


def _records(keys: ndarray, places: ndarray) -> ndarray:
    return np.rec.fromarrays([keys, places], RECORD)


def read_decisions(directory: Path, name: str) -> ndarray:
    """Return the decision on each document of a text part, an index into DECISIONS, uint8 (documents,)."""
    return map_file(directory / "dedup" / f"{name}.fates", np.uint8)


def read_dropped(directory: Path, name: str, begin: int, end: int) -> ndarray:
    """Return which lines from `begin` to `end` of a text part are dropped, bool (end - begin,)."""
    return read_bits(map_file(directory / "dedup" / f"{name}.dropped", np.uint8), begin, end)
