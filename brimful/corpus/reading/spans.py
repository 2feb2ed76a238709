"""Large files -> spans that workers read on their own; together they yield what the file yields."""

from brimful.corpus.reading.inputs import Input, Span, format_of, split_suffix
from brimful.corpus.reading.lines import has_byte_lines
from brimful.corpus.reading.read import LONGEST_PIECE, ReadConfig
from brimful.corpus.reading.tables import column_bytes


def divide(item: Input, config: ReadConfig, size: int) -> list[Span]:
    """Divide a file into spans of about `size` bytes (.parquet: of the column's text), in order.

    Divided are .txt, .jsonl, .tsv by bytes and .parquet by row groups. Whole stay compressed files, .csv
    (a quoted field may hold line breaks), .html, .arrow, and encodings in which a line feed cannot be found
    without reading from the start. No content is read, of .parquet the footer.

    A .txt file that is one document (split "file", at most 4 MB) stays whole.
    """
    kind = format_of(item.path)
    whole = [Span(path=item.path)]
    if split_suffix(item.path)[1]:
        return whole
    if kind == "parquet":
        return _by_row_groups(item.path, config.field, size) or whole
    if kind not in ("text", "jsonl", "tsv") or not has_byte_lines(config.encoding):
        return whole
    if kind == "text" and config.split == "file":
        size = max(size, LONGEST_PIECE)
    number = max(1, round(item.bytes / size))
    cuts = [item.bytes * cut // number for cut in range(number)]
    return [
        Span(path=item.path, begin=begin, end=end) for begin, end in zip(cuts, [*cuts[1:], None], strict=True)
    ]


def _by_row_groups(path: str, field: str, size: int) -> list[Span]:
    """No spans if the footer cannot be read: the reader reports it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
        sizes = [column_bytes(footer.row_group(group), field) for group in range(footer.num_row_groups)]
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return []
    spans = []
    begin = filled = 0
    for group, size_of_group in enumerate(sizes):
        filled += size_of_group
        if filled >= size:
            spans.append(Span(path=path, begin=begin, end=group + 1))
            begin, filled = group + 1, 0
    if begin < len(sizes):
        spans.append(Span(path=path, begin=begin))
    return spans
