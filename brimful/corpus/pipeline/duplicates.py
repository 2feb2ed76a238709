"""What becomes of each clean document and line: kept, or dropped as a repetition of earlier ones.

    dedup/NAME.fates      uint8 for each document of the text part NAME: an index into FATES
    dedup/NAME.dropped    a bit for each of its lines: dropped, because it recurs
    dedup/generation-N.json  the commit record of all parts that were added together

This is the one stage that sees the whole corpus, so one process does it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from brimful.config import config_hash
from brimful.corpus.dedup.duplicates import RECORD, DedupConfig, mark_recurring, mark_repeats
from brimful.corpus.pipeline.plan import Generation
from brimful.corpus.pipeline.text import TextPart
from brimful.corpus.shards import map_file, read_bits
from brimful.storage import atomic_files, cannot_write, commit, find_commit

FATES = ("kept", "duplicate", "near duplicate")
# Raised with every change of what is decided, so that what an earlier version decided is decided anew.
RULES = 1


def _record_path(directory: Path, generation: Generation) -> Path:
    return directory / "dedup" / f"{generation.name}.json"


def decided(
    directory: Path, generation: Generation, texts: Sequence[dict[str, Any]], config: DedupConfig
) -> dict[str, Any] | None:
    """The commit record of a generation whose fates are decided already, else None.

    Args:
        texts: the commit records of all text parts up to this generation's last one.
    """
    return find_commit(_record_path(directory, generation), config_hash=_hash(texts, config))


def _hash(texts: Sequence[dict[str, Any]], config: DedupConfig) -> str:
    return config_hash({"rules": RULES, "dedup": asdict(config), "texts": [text["files"] for text in texts]})


def decide(
    directory: Path,
    generations: Sequence[Generation],
    texts: Sequence[dict[str, Any]],
    config: DedupConfig,
    missing: Sequence[int],
) -> None:
    """Decide for the whole corpus and commit the generations `missing`.

    Raises:
        BrimfulError: the folder cannot be written.
    """
    names = [part.name for generation in generations for part in generation.parts]
    corpus = _Corpus(directory, [TextPart(directory, name) for name in names])
    try:
        fates = corpus.decide_documents(config)
        dropped = corpus.decide_lines(config, fates)
    except OSError as error:  # numpy's have no file name, and no errno for a full disk
        raise cannot_write(directory / "dedup", error) from error
    for number in missing:
        hash = _hash(texts[: _parts(generations, number)], config)
        corpus.write(generations[number], fates, dropped, hash)


def _parts(generations: Sequence[Generation], number: int) -> int:
    """How many parts there are up to the last of this generation."""
    return sum(len(generation.parts) for generation in generations[: number + 1])


class _Corpus:
    """All text parts, documents and lines numbered through."""

    def __init__(self, directory: Path, parts: list[TextPart]) -> None:
        self._directory = directory
        self._parts = parts
        self._begins = np.cumsum([0, *(len(part.documents) for part in parts)])
        self._scratch = directory / "dedup"
        self._scratch.mkdir(exist_ok=True)

    def decide_documents(self, config: DedupConfig) -> np.ndarray:
        """The fate of each document, uint8 (documents,)."""
        total = int(self._begins[-1])
        fates = np.zeros(total, np.uint8)
        if config.documents:
            repeats = np.zeros(total, bool)
            mark_repeats(self._document_records(), total, self._scratch, repeats)
            fates[repeats] = FATES.index("duplicate")
        if config.near:
            repeats = np.zeros(total, bool)
            bands = self._parts[0].bands.shape[1] if self._parts else 0
            mark_repeats(self._band_records(fates), total * bands, self._scratch, repeats)
            fates[repeats] = FATES.index("near duplicate")
        return fates

    def decide_lines(self, config: DedupConfig, fates: np.ndarray) -> np.ndarray:
        """Which lines are dropped, bool (lines,); none if recurring lines are not looked for."""
        counts = np.concatenate([np.empty(0, np.uint32), *(part.documents["lines"] for part in self._parts)])
        ends = np.cumsum(counts, dtype=np.int64)
        eligible = (fates == 0) & (counts > 1)  # a document of one line is a matter of whole documents
        dropped = np.zeros(int(ends[-1]) if len(ends) else 0, bool)
        if not config.lines:
            return dropped
        records = self._line_records(np.repeat(eligible, counts))
        mark_recurring(records, len(dropped), self._scratch, ends - counts, config.lines, dropped)
        return dropped

    def _document_records(self) -> Iterator[np.ndarray]:
        for begin, part in zip(self._begins.tolist(), self._parts, strict=False):
            yield _records(part.documents["key"], begin + np.arange(len(part.documents)))

    def _band_records(self, fates: np.ndarray) -> Iterator[np.ndarray]:
        for begin, part in zip(self._begins.tolist(), self._parts, strict=False):
            kept = np.flatnonzero(fates[begin : begin + len(part.documents)] == 0)
            bands = part.bands[kept]
            yield _records(bands.reshape(-1), np.repeat(begin + kept, bands.shape[1]))

    def _line_records(self, eligible: np.ndarray) -> Iterator[np.ndarray]:
        begin = 0
        for part in self._parts:
            chosen = np.flatnonzero(eligible[begin : begin + len(part.lines)] & (part.lines != 0))
            yield _records(part.lines[chosen], begin + chosen)
            begin += len(part.lines)

    def write(self, generation: Generation, fates: np.ndarray, dropped: np.ndarray, hash: str) -> None:
        """Commit what was decided about a generation's parts."""
        own = {part.name for part in generation.parts}
        contents: dict[Path, np.ndarray] = {}
        line = 0
        for begin, part in zip(self._begins.tolist(), self._parts, strict=False):
            end = begin + len(part.documents)
            lines = int(part.documents["lines"].sum())
            if part.name in own:
                contents[self._scratch / f"{part.name}.fates"] = fates[begin:end]
                bits = np.packbits(dropped[line : line + lines], bitorder="little")
                contents[self._scratch / f"{part.name}.dropped"] = bits
            line += lines
        record = _record_path(self._directory, generation)
        with atomic_files(record, list(contents)) as temporaries:
            for temporary, values in zip(temporaries, contents.values(), strict=True):
                temporary.write_bytes(values.tobytes())
        commit(record, contents, config_hash=hash)


def _records(keys: np.ndarray, places: np.ndarray) -> np.ndarray:
    records = np.empty(len(keys), RECORD)
    records["key"], records["place"] = keys, places
    return records


def read_fates(directory: Path, name: str) -> np.ndarray:
    """The fate of each document of a text part, uint8 (documents,)."""
    return map_file(directory / "dedup" / f"{name}.fates", np.uint8)


def read_dropped(directory: Path, name: str, begin: int, end: int) -> np.ndarray:
    """Which of the lines begin..end of a text part are dropped, bool (end - begin,)."""
    return read_bits(map_file(directory / "dedup" / f"{name}.dropped", np.uint8), begin, end)
