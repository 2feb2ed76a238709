"""Files and folders -> texts, for commands that see a corpus once. Nothing is cleaned or dropped."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from brimful.base.storage import read_commit
from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.input_files import find_inputs, require_forms
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.read import ReadConfig, read_documents
from brimful.corpus.reading.text_columns import MissingFieldError

# The clean text of a prepared corpus.
_PREPARED_PART = re.compile(r"(^|/)text/part-\d+\.parquet$")
# The field of second texts, in tables of pairs.
SECOND_FIELD = "text_b"


def read_texts(
    paths: Iterable[str],
    out: str,
    config: ReadConfig | None = None,
    issues: dict[str, Counter[str]] | None = None,
    more_fields: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the documents of all files, in order, one at a time in memory. Pages give their text.

    The folder of a prepared corpus gives its clean text, unless that has been deleted.

    Args:
        paths: files, folders and globs, as for `find_inputs`.
        out: the place where the caller will write, which must not be read.
        config: how files become documents; by default each line of a .txt is one, to bound memory: a text of
            4 MB takes 1 GB while it is encoded.
        issues: collects the faults of each file.
        more_fields: further fields that hold text, besides `SECOND_FIELD`; a file of records without one is
            an issue. A file is read once for each of its fields.

    Raises:
        BrimfulError: `find_inputs` refuses the paths, `read_documents` refuses a file, or a prepared corpus
            is damaged.
    """
    config = config or ReadConfig(split="line")
    inputs = find_inputs(paths, out)
    require_forms(inputs, [config.field], config.encoding)
    for path in [item.path for item in inputs]:
        path_issues: Counter[str] = Counter()
        record = Path(path).with_suffix(".json")
        if _PREPARED_PART.search(path) and record.is_file():
            read_commit(record, verify=True, remedy="run prepare again")
        form = form_of(path, [config.field], config.encoding)
        fields = [config.field]
        if form not in ("text", "html"):
            fields += sorted({*more_fields, SECOND_FIELD} - {config.field})
        for field in fields:
            field_issues: Counter[str] = Counter()
            try:
                for _, text in read_documents(Span(path=path), replace(config, field=field), field_issues):
                    yield read_page(text) if form == "html" else text
            except MissingFieldError:
                if field == config.field:
                    raise
                field_issues.clear()
                if field in more_fields:
                    field_issues[f"no field {field!r}"] = 1
            path_issues |= field_issues  # a broken line is counted once, not once for each field
        if path_issues and issues is not None:
            issues[path] = path_issues
