"""Texts of files and folders, read once."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.read import ReadConfig
from brimful.corpus.reading.texts import read_texts


def test_files_of_a_folder(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", str(tmp_path / "out")
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "b.jsonl").write_text('{"text": "three"}\n{broken\n{"text": "four"}\n')
    (folder / "c.html").write_text("<html><body><script>no</script><p>ten &amp; more</p></body></html>")
    pq.write_table(pa.table({"text": ["eight", None, "nine"]}), folder / "d.parquet")
    issues: dict[str, Counter[str]] = {}
    expected = ["one", "two", "three", "four", "ten & more", "eight", "nine"]
    assert list(read_texts([str(folder)], out, issues=issues)) == expected
    records = {"b.jsonl": "broken JSON lines", "d.parquet": "records without a text 'text'"}
    assert issues == {str(folder / name): {issue: 1} for name, issue in records.items()}
    whole = read_texts([str(folder / "a.txt")], out, ReadConfig(split="file"))
    assert list(whole) == ["one\ntwo"]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("sentence\tlabel\nx\t1\n")
    with pytest.raises(BrimfulError, match="overlap"):
        next(read_texts([str(tmp_path)], str(tmp_path / "out")))
    with pytest.raises(BrimfulError, match="'text'"):
        list(read_texts([str(tmp_path / "a.tsv")], "out"))
