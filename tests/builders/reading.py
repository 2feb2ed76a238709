"""Files for the readers of `prepare`, and what these make of them."""

from collections import Counter
from pathlib import Path

from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.read import ReadConfig, read_documents


def write(path: Path, data: str | bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def read_numbered(path: Path, **config) -> tuple[list[tuple[int, str]], Counter[str]]:
    issues: Counter[str] = Counter()
    return list(read_documents(Span(path=str(path)), ReadConfig(**config), issues)), issues


def read(path: Path, data: str | bytes | None = None, **config) -> tuple[list[str], Counter[str]]:
    """The texts of a file, which is written first if it has data, and its issues."""
    documents, issues = read_numbered(path if data is None else write(path, data), **config)
    return [text for _, text in documents], issues
