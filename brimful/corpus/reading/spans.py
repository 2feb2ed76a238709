"""Divides large files into spans for several workers; together they yield the documents of the file."""

from itertools import pairwise

from brimful.corpus.reading.archives import compression_of
from brimful.corpus.reading.charsets import find_charset
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.input_files import Input
from brimful.corpus.reading.inputs import Span, split_suffix
from brimful.corpus.reading.read import LONGEST_PIECE, ReadConfig, is_quoted
from brimful.corpus.reading.tables import column_bytes


def divide(item: Input, config: ReadConfig, size: int) -> list[Span]:
    """Divide a file into spans of about `size` bytes (.parquet: of the column's text), in order.

    .txt, JSON lines and .tsv are divided by bytes, .parquet by row groups. Other files stay whole: compressed
    files, .csv and quoted .tsv (a quoted field may hold line breaks), .html, .arrow, and encodings whose line
    feeds are found only by reading from the start. Only the footer of a .parquet file is read.

    A .txt file that is one document (split "file", at most 4 MB) stays whole.
    """
    whole = [Span(path=item.path)]
    if item.bytes < size and split_suffix(item.path)[0] != ".parquet":
        return whole
    try:
        compressed = compression_of(item.path)
    except OSError:  # the reader reports it
        return whole
    form = form_of(item.path, [config.field], config.encoding)
    if compressed:
        return whole
    if form == "parquet":
        return _divide_row_groups(item.path, config.field, size) or whole
    if form not in ("text", "jsonl", "tsv") or not find_charset(config.encoding).byte_lines:
        return whole
    if form == "tsv" and is_quoted(item.path, config):
        return whole
    if form == "text" and config.split == "file":
        size = max(size, LONGEST_PIECE)
    number = max(1, round(item.bytes / size))
    borders = [item.bytes * part // number for part in range(number)]
    spans = [Span(path=item.path, begin=begin, end=end) for begin, end in pairwise(borders)]
    return [*spans, Span(path=item.path, begin=borders[-1])]


def _divide_row_groups(path: str, field: str, size: int) -> list[Span]:
    """Return the spans of a .parquet file; an empty list if its footer cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open(path, "rb") as file:
            footer = pq.read_metadata(file)
        sizes = [column_bytes(footer.row_group(group), field) for group in range(footer.num_row_groups)]
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return []
    spans = []
    begin = filled = 0
    for end, size_of_group in enumerate(sizes, 1):
        filled += size_of_group
        if filled >= size:
            spans.append(Span(path=path, begin=begin, end=end))
            begin, filled = end, 0
    if begin < len(sizes):
        spans.append(Span(path=path, begin=begin))
    return spans
