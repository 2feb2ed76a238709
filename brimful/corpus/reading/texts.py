"""Files and folders -> texts, for what only needs to see a corpus once. Nothing is cleaned or dropped."""

from collections import Counter
from collections.abc import Iterable, Iterator

from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.inputs import Span, find_inputs, format_of
from brimful.corpus.reading.read import ReadConfig, read_documents


def read_texts(
    paths: Iterable[str],
    out: str,
    config: ReadConfig | None = None,
    issues: dict[str, Counter[str]] | None = None,
) -> Iterator[str]:
    """The documents of all files, in order, one at a time in memory; of HTML pages, their text.

    The folder of a prepared corpus gives its clean text, unless that has been deleted.

    Args:
        paths: files, folders and globs, as for `find_inputs`.
        out: where the caller will write; it must not be read.
        config: how files become documents; by default each line of a .txt is one, to bound memory: a text of
            4 MB takes 1 GB while it is encoded.
        issues: collects what went wrong, by file.

    Raises:
        BrimfulError: as `find_inputs`, at once; as `read_documents`, while reading.
    """
    inputs = find_inputs(paths, out)
    return _documents([item.path for item in inputs], config or ReadConfig(split="line"), issues)


def _documents(paths: list[str], config: ReadConfig, issues: dict[str, Counter[str]] | None) -> Iterator[str]:
    for path in paths:
        found: Counter[str] = Counter()
        is_html = format_of(path) == "html"
        for _, text in read_documents(Span(path=path), config, found):
            yield read_page(text) if is_html else text
        if found and issues is not None:
            issues[path] = found
