"""Task files are parsed and encoded once: what is kept, when it is made again, and by which rank."""

import errno
import inspect
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from brimful.base.cache import RECORD, cache_folder
from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.tables import table_files
from brimful.tables.table import Table
from brimful.tables.table_files import read_file
from brimful.tasks import cached_tables as cache
from brimful.tasks.cached_tables import MakeRows, TaskFiles
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.registry import find_task
from brimful.tasks.row_groups import group_alike_rows
from brimful.tasks.task import Task
from builders.ranks import on_ranks

QUESTION: dict[str, Any] = {"id": "q", "question": "who", "context": "it was a man of the town " * 4}
QUESTION["answers"] = {"text": ["a man"], "answer_start": [7]}
FILES = {
    "classification": ("a.tsv", "text\ttext_b\tlabel\nthe good\tb\tyes\n\tc\tno\nthe good\tb\tyes\n"),
    "multi-label": ("a.csv", "text,label\na b,x|y\nc,\n"),
    "regression": ("a.jsonl", '{"text": "a ", "label": 1}\n{"text": "好的", "label": 2.5}\n'),
    "token-classification": ("a.conll", "the O\ngood B-A\nfilm I-A\n\nbad O\n"),
    "question-answering": ("a.jsonl", json.dumps(QUESTION) + "\n"),
}

MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIMFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def table_file(tmp_path):
    """Three rows of a classification, the second with an empty text."""
    return written("classification", tmp_path)[1]


@pytest.fixture(scope="module")
def tokenizer(corpus_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(corpus_dir / "tokenizer.json"))


def written(name: str, directory: Path) -> tuple[type[Task], Path]:
    file, content = FILES[name]
    (directory / file).write_text(content, encoding="utf-8")
    return find_task(name), directory / file


def encoded(path: Path, tokenizer: Tokenizer, kind: type[Task] = Classification) -> Encoded:
    files = TaskFiles(kind)
    return files.encode(kind.from_table(files.read(path)), path, tokenizer, 16, 4)


def columns_of(data: Table | Examples) -> dict[str, Any]:
    return {field.name: getattr(data, field.name) for field in fields(data)}


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, np.ndarray | Ragged | Sequence) and not isinstance(first, str):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)


def surprise(*_: object, **__: object) -> None:
    raise AssertionError("parsed or encoded again")


@pytest.mark.parametrize("name", FILES)
def test_the_second_time_nothing_is_parsed_or_encoded(name, tmp_path, folder, tokenizer, monkeypatch):
    kind, path = written(name, tmp_path)
    table = read_file(kind, path, labelled=True)
    plain = kind.from_table(table).encode(table, tokenizer, 16, 4, labelled=True)
    first = encoded(path, tokenizer, kind)
    monkeypatch.setattr(kind, "read", surprise)
    monkeypatch.setattr(kind, "encode", surprise)
    for data in (first, encoded(path, tokenizer, kind)):
        assert type(data.table) is type(table)
        assert same(columns_of(table), columns_of(data.table))
        assert same(columns_of(plain.examples), columns_of(data.examples))
        assert data.table.fingerprints.tolist() == table.fingerprints.tolist()
        assert data.table.take(np.array([0])).texts[0] == table.texts[0]
    assert "columns.arrow" in MAPS.read_text() if MAPS.exists() else True
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("overlap", [None, 2])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_table_in_slices_is_the_whole_table(pairs, overlap, tmp_path, tokenizer, monkeypatch, capfd):
    """Slices of two rows; of windows each has a different number."""
    texts = ["the good", "", "of the town " * 9, "it was a man", "the good", "a man " * 7, ""]
    short = ["a", "", "the man", "was", "a", "good", ""]
    first, second = (short, texts) if pairs else (texts, short)
    lines = [f"{a}\t{b}\t{row % 2}\n" for row, (a, b) in enumerate(zip(first, second, strict=True))]
    header = f"text\t{'text_b' if pairs else 'other'}\tlabel\n"
    (tmp_path / "a.tsv").write_text(header + "".join(lines))
    task = Classification.from_labels(["0", "1"])
    with record_warnings() as said:
        table = read_file(Classification, tmp_path / "a.tsv", labelled=True)
    plain = task.encode(table, tokenizer, 12, overlap, labelled=True).examples
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 2)
    monkeypatch.setattr(cache, "TEXTS_AT_ONCE", 2)
    data = TaskFiles(Classification).encode(task, tmp_path / "a.tsv", tokenizer, 12, overlap)
    (line,) = said
    assert capfd.readouterr().err == f"warning: {line}\n"
    assert "2 rows (line 3, 8) have an empty text" in line
    assert same(columns_of(plain), columns_of(data.examples))
    assert same(columns_of(table), columns_of(data.table))
    assert (plain.texts is not None) == (overlap is not None)


def test_a_fault_in_a_later_slice_leaves_no_entry(tmp_path, folder, monkeypatch):
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "a\tb\n" * 5 + "a\n")
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 2)
    with pytest.raises(BrimfulError, match="line 7"):
        TaskFiles(Classification).read(tmp_path / "a.tsv")
    assert not any(folder.iterdir())


def test_a_full_disk_costs_no_more_than_the_entry(table_file, tokenizer, monkeypatch, capfd):
    def fill_disk(folder: Path, make_rows: MakeRows) -> None:
        next(make_rows({}))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache, "_write", fill_disk)
    assert list(encoded(table_file, tokenizer).table.texts) == ["the good", "", "the good"]
    messages = capfd.readouterr().err
    assert messages.count("encoded task files are not kept") == 1
    assert messages.count("have an empty text") == 1


def test_what_decides_the_result_has_an_entry_of_its_own(table_file, folder, tokenizer):
    files, task = TaskFiles(Classification), Classification(["no", "yes"])
    files.encode(task, table_file, tokenizer, 16, None)
    files.encode(task, table_file, tokenizer, 16, None)
    assert len(list(folder.iterdir())) == 2
    assert files.encode(task, table_file, tokenizer, 5, None).examples.max_length == 5
    swapped = files.encode(Classification(["yes", "no"]), table_file, tokenizer, 16, None)
    assert swapped.targets["label"].tolist() == [0, 1, 0]
    assert len(list(folder.iterdir())) == 4
    table_file.write_text(table_file.read_text().replace("\tno", "\tyes"))
    assert list(TaskFiles(Classification).read(table_file).labels or []) == ["yes", "yes", "yes"]


@pytest.mark.parametrize("damage", ["cut", "changed", "no record"])
def test_a_damaged_entry_is_made_again(damage, table_file, folder, tokenizer):
    before = encoded(table_file, tokenizer)
    for file in folder.glob("*/columns.arrow"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 255
        if damage == "no record":
            (file.parent / RECORD).unlink()
        else:
            file.write_bytes(content if damage == "changed" else content[:-1])
    after = encoded(table_file, tokenizer)
    assert list(after.table.texts) == ["the good", "", "the good"]
    assert same(before.examples.targets, after.examples.targets)


def test_warnings_are_repeated(table_file, tokenizer, capfd):
    encoded(table_file, tokenizer)
    assert "a.tsv: 1 row (line 3) have an empty text" in capfd.readouterr().err
    encoded(table_file.rename(table_file.with_name("b.tsv")), tokenizer)
    assert "b.tsv: 1 row (line 3) have an empty text" in capfd.readouterr().err


def test_it_can_be_off_or_elsewhere(tmp_path, table_file, folder, tokenizer, monkeypatch):
    monkeypatch.setenv("BRIMFUL_CACHE", "off")
    assert len(encoded(table_file, tokenizer)) == 3
    assert not folder.exists()
    monkeypatch.delenv("BRIMFUL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "brimful" / "tasks"


def test_the_oldest_entries_go_first(table_file, folder, monkeypatch):
    monkeypatch.setattr("brimful.base.cache.MAX_CACHE_BYTES", 1)
    for number in range(3):
        table_file.write_text(f"text\tlabel\n{number}\ta\n")
        assert list(TaskFiles(Classification).read(table_file).texts) == [str(number)]
        assert len(list(folder.iterdir())) == 1


RANK = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from brimful.base.distributed import World
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.classification import Classification

dist.init_process_group("gloo")
folder, rank = Path(sys.argv[1]), dist.get_rank()
os.environ["BRIMFUL_CACHE"] = str(folder / "cache")
files = TaskFiles(Classification, ranks=World(rank, 2, torch.device("cpu")))
table = files.read(folder / "a.tsv")
assert list(table.texts) == ["the good", "", "the good"], table.texts
assert "a.tsv" in str(table.path)
maps = Path("/proc/self/maps")
assert not maps.exists() or "columns.arrow" in maps.read_text()
try:
    files.read(folder / "bad.tsv")
except Exception as error:
    (folder / f"error-{rank}").write_text(str(error))
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("table_file")
def test_one_rank_encodes_and_the_other_maps_the_same_file(tmp_path):
    (tmp_path / "bad.tsv").write_text("text\nb\n")
    assert on_ranks(2, RANK, tmp_path).count("have an empty text") == 1
    assert (tmp_path / "error-0").read_text() == (tmp_path / "error-1").read_text()


@pytest.mark.parametrize("changed", ["tasks/classification.py", "base/draws.py", "base/randomness.py"])
def test_entries_are_of_all_the_code_that_makes_them(changed, monkeypatch):
    """Also of what their functions import."""
    makers = {"groups": [group_alike_rows], "files": [TaskFiles, Classification]}

    def hashes() -> dict[str, str]:
        hash_code = cache.hash_code.__wrapped__
        return {name: hash_code(*map(inspect.getfile, made)) for name, made in makers.items()}

    before, read = hashes(), Path.read_bytes
    path = cache.PACKAGE / changed
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"#" * (self == path))
    after = hashes()
    differ = {name for name in makers if before[name] != after[name]}
    assert differ == ({"files"} if changed.startswith("tasks") else set(makers))
