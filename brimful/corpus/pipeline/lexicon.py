"""Whether the user's lexicon has anything to do with the text."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from brimful.base.console import counted, warn
from brimful.corpus.pipeline.text import TextPart
from brimful.corpus.words.segmenter import Language, Segmenter, entries_found, read_lexicon

CHARACTERS = 2_000_000
"""Characters of the text that are looked through, of all parts alike."""
FEWEST = 1e-3
"""A lexicon of which a smaller proportion occurs is probably written otherwise than the text."""


def check_lexicon(directory: Path, language: Language, path: str) -> None:
    """Warn of a lexicon of which nothing, or hardly anything, occurs in the clean text of a corpus.

    Raises:
        BrimfulError: as `read_lexicon`.
    """
    words = read_lexicon(path)
    parts = sorted(file.stem for file in (directory / "text").glob("*.parquet"))
    seen = 0

    def texts() -> Iterator[str]:
        nonlocal seen
        for place, name in enumerate(parts, 1):
            part = TextPart(directory, name)
            for _, text, _, _ in part.rows(0, np.ones(len(part.documents), dtype=bool)):
                if seen >= CHARACTERS * place // len(parts):
                    break
                seen += len(text)
                yield text

    found = entries_found(Segmenter(language, words), words, texts())
    if found <= FEWEST * len(words):
        where = "the text" if seen < CHARACTERS else f"{seen:,} characters of the text"
        entries = counted(len(words), "entry").replace("entrys", "entries")
        warn(
            f"{path}: {found:,} of {entries} occur in {where} (the first is {words[0]!r:.40}): words are"
            " found only as they are written, one a line"
        )
