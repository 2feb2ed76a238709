"""Files and folders -> texts, for what only needs to see a corpus once. Nothing is cleaned or dropped."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from brimful.base.storage import read_commit
from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.forms import form_of, require_forms
from brimful.corpus.reading.inputs import Span, find_inputs
from brimful.corpus.reading.read import ReadConfig, read_documents
from brimful.corpus.reading.tables import NoFieldError

_PART = re.compile(r"(^|/)text/part-\d+\.parquet$")
"""The clean text of a prepared corpus."""
SECOND = "text_b"
"""The field of second texts, in tables of pairs."""


def read_texts(
    paths: Iterable[str],
    out: str,
    config: ReadConfig | None = None,
    issues: dict[str, Counter[str]] | None = None,
    more_fields: Sequence[str] = (),
) -> Iterator[str]:
    """The documents of all files, in order, one at a time in memory; of HTML pages, their text.

    The folder of a prepared corpus gives its clean text, unless that has been deleted.

    Args:
        paths: files, folders and globs, as for `find_inputs`.
        out: where the caller will write; it must not be read.
        config: how files become documents; by default each line of a .txt is one, to bound memory: a text of
            4 MB takes 1 GB while it is encoded.
        issues: collects what went wrong, by file.
        more_fields: further fields that hold text, besides `SECOND`; a file of records without one is an
            issue. A file is read once for each of its fields.

    Raises:
        BrimfulError: as `find_inputs`, at once; as `read_documents`, while reading; a prepared corpus is
            damaged.
    """
    config = config or ReadConfig(split="line")
    inputs = find_inputs(paths, out)
    require_forms(inputs, [config.field], config.encoding)
    return _documents([item.path for item in inputs], config, issues, more_fields)


def _documents(
    paths: list[str],
    config: ReadConfig,
    issues: dict[str, Counter[str]] | None,
    more_fields: Sequence[str],
) -> Iterator[str]:
    for path in paths:
        found: Counter[str] = Counter()
        record = Path(path).with_suffix(".json")
        if _PART.search(path) and record.is_file():
            read_commit(record, verify=True, remedy="run prepare again")
        kind = form_of(path, [config.field], config.encoding)
        for _, text in read_documents(Span(path=path), config, found):
            yield read_page(text) if kind == "html" else text
        more = {*more_fields, SECOND} - {config.field} if kind not in ("text", "html") else ()
        for field in sorted(more):
            again: Counter[str] = Counter()
            try:
                for _, text in read_documents(Span(path=path), replace(config, field=field), again):
                    yield text
            except NoFieldError:
                again = Counter({f"no field {field!r}": 1} if field in more_fields else {})
            found |= again  # a line that is broken is so for every field
        if found and issues is not None:
            issues[path] = found
