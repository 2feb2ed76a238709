"""Rows of tables: the types that pyarrow reads, and what `predict` writes is read back."""

import json
import re
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.dialects import DialectOptions
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.read import ReadConfig, read_documents
from brimful.tables.file_rows import open_rows
from brimful.tables.layouts import LAYOUTS, Columns, FileLayout
from brimful.tables.table_files import read_table
from brimful.tasks.prediction_files import FORMATS
from builders.tables import write_rows

TEXTS = ["a b", "很好", 'c "d"', "a b"]


class Tagged(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.string(), "brimful.test.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Tagged":
        return cls()


def columns() -> dict[str, pa.Array]:
    plain = pa.array(TEXTS)
    return {
        "string": plain,
        "large_string": plain.cast(pa.large_string()),
        "string_view": plain.cast(pa.string_view()),
        "binary": plain.cast(pa.binary()),
        "large_binary": plain.cast(pa.large_binary()),
        "dictionary": plain.dictionary_encode(),
        "dictionary of large": plain.cast(pa.large_string()).dictionary_encode(),
        "extension": pa.ExtensionArray.from_storage(Tagged(), plain),
    }


def write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("kind", columns())
def test_all_types_of_text(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    write(path, pa.table({"n": range(4), "text": columns()[kind], "label": [1, 0, 1, 0]}))
    issues: Counter[str] = Counter()
    found = [text for _, text in read_documents(Span(path=str(path)), ReadConfig(), issues)]
    assert (found, issues) == (TEXTS, {})
    table = read_table(path, labelled=True)
    assert (table.texts, table.labels) == (TEXTS, ["1", "0", "1", "0"])


def test_run_ends_are_values(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["a", "b"]))
    write(tmp_path / "a.arrow", pa.table({"text": runs, "label": [1, 0, 1, 0]}))
    assert read_table(tmp_path / "a.arrow", labelled=True).texts == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 0, 1], ["1", "0", "1"]),
        ([True, False, True], ["True", "False", "True"]),
        ([0.5, 1.0, 2.0], ["0.5", "1.0", "2.0"]),
        ([Decimal("1.50"), Decimal("2.00"), Decimal("0.25")], ["1.50", "2.00", "0.25"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        ([b"x", b"y", b"x"], ["x", "y", "x"]),
    ],
)
def test_labels_of_every_type(labels: list, expected: list[str], tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"text": ["a", "b", "c"], "label": labels}))
    assert read_table(tmp_path / "a.parquet", labelled=True).labels == expected


def test_classes_keep_their_numbers_where_a_layout_counts_them(tmp_path: Path) -> None:
    """Hugging Face's copy of SST-2 calls them negative and positive, GLUE 0 and 1."""
    features = {"label": {"names": ["negative", "positive"], "_type": "ClassLabel"}}
    table = pa.table({"sentence": ["a", "b"], "label": [1, 0]})
    described = {"huggingface": json.dumps({"info": {"features": features}})}
    write(tmp_path / "a.parquet", table.replace_schema_metadata(described))
    for layout, labels in (
        (LAYOUTS["glue/sst-2"], ["1", "0"]),
        (FileLayout(columns=Columns(text="sentence")), ["positive", "negative"]),
    ):
        assert read_table(tmp_path / "a.parquet", labelled=True, layout=layout).labels == labels


def test_other_columns_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, pa.table({"text": [{"body": "a"}]}))
    with pytest.raises(BrimfulError, match="holds struct<body: string>, not text"):
        list(read_documents(Span(path=str(path)), ReadConfig(), Counter()))
    write(path, pa.table({"text": pa.array([b"\xff\xfe"])}))
    with pytest.raises(BrimfulError, match="not UTF-8"):
        read_table(path, labelled=False)


QUOTED = FileLayout(dialect=DialectOptions(quote='"'))
TEXT = st.text(st.sampled_from("ab 好\"\t\n\r\u2028,;|\\'"), max_size=12)


@pytest.mark.cases(40)
@pytest.mark.parametrize("suffix", FORMATS)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8))
def test_what_is_written_is_read_back(suffix: str, rows: list[tuple[str, str]]) -> None:
    """Texts with tabs, quotes and line ends, in every format, as `predict --output` writes them.

    In files of lines, all line ends become line feeds.
    """
    written = [{"text": a, "text_b": b, "label": "x y", "n": n} for n, (a, b) in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder, record_warnings():
        path = Path(folder, f"a{suffix}")
        write_rows(path, written)
        found = [row for _, row in open_rows(path, ["text"], QUOTED, every=True)[1]]

    ends = "\r\n?|\n" if suffix in (".tsv", ".csv") else "\n"
    assert [str(row["n"]) for row in found] == [str(n) for n in range(len(rows))]
    wanted = [tuple(re.sub(ends, "\n", text) for text in row) for row in rows]
    assert [(row["text"], row["text_b"]) for row in found] == wanted
