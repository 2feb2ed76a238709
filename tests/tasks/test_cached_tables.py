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
from brimful.data.ragged import Ragged
from brimful.tables import table_files
from brimful.tables.layouts import LAYOUTS
from brimful.tables.table_files import read_file
from brimful.tasks import cached_tables as cache
from brimful.tasks.cached_tables import MakeRows, TaskFiles
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.registry import find_task
from brimful.tasks.row_groups import group_alike_rows
from brimful.tasks.task import Task
from builders.ranks import on_two_ranks

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRIMFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tokenizer(corpus_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(corpus_dir / "tokenizer.json"))


def written(name: str, directory: Path) -> tuple[type[Task], Path]:
    file, content = FILES[name]
    (directory / file).write_text(content, encoding="utf-8")
    return find_task(name), directory / file


def encoded(kind: type[Task], path: Path, tokenizer: Tokenizer) -> Encoded:
    files = TaskFiles(kind)
    task = kind.from_table(files.read(path))
    return files.encode(task, path, tokenizer, 16, 4)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, np.ndarray | Ragged | Sequence) and not isinstance(first, str):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)


def surprise(*_: object, **__: object) -> None:
    raise AssertionError("parsed or encoded again")


@pytest.mark.parametrize("name", FILES)
def test_the_second_time_nothing_is_parsed_or_encoded(
    name: str, tmp_path: Path, folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, path = written(name, tmp_path)
    table = read_file(kind, path, labelled=True)
    task = kind.from_table(table)
    plain = task.encode(table, tokenizer, 16, 4, labelled=True)
    first = encoded(kind, path, tokenizer)
    monkeypatch.setattr(kind, "read", surprise)
    monkeypatch.setattr(kind, "encode", surprise)
    second = encoded(kind, path, tokenizer)
    for data in (first, second):
        assert type(data.table) is type(table)
        for field in fields(table):
            assert same(getattr(table, field.name), getattr(data.table, field.name)), field.name
        for field in fields(plain.examples):
            assert same(getattr(plain.examples, field.name), getattr(data.examples, field.name)), field.name
        assert data.table.fingerprints.tolist() == table.fingerprints.tolist()
        assert data.table.take(np.array([0])).texts[0] == table.texts[0]
    assert "columns.arrow" in MAPS.read_text() if MAPS.exists() else True
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("overlap", [None, 2])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_table_in_slices_is_the_whole_table(
    pairs: bool,
    overlap: int | None,
    tmp_path: Path,
    folder: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Slices of two rows; of windows each has a different number."""
    texts = ["the good", "", "of the town " * 9, "it was a man", "the good", "a man " * 7, "was"]
    short = ["a", "", "the man", "was", "a", "good", "it"]
    first, second = (short, texts) if pairs else (texts, short)
    lines = [f"{a}\t{b}\t{row % 2}\n" for row, (a, b) in enumerate(zip(first, second, strict=True))]
    header = f"text\t{'text_b' if pairs else 'other'}\tlabel\n"
    (tmp_path / "a.tsv").write_text(header + "".join(lines))
    kind = find_task("classification")
    task = kind.from_labels(["0", "1"])
    with record_warnings() as said:
        table = read_file(kind, tmp_path / "a.tsv", labelled=True)
    plain = task.encode(table, tokenizer, 12, overlap, labelled=True).examples
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 2)
    monkeypatch.setattr(cache, "TEXTS_AT_ONCE", 2)
    data = TaskFiles(kind).encode(task, tmp_path / "a.tsv", tokenizer, 12, overlap)
    (line,) = said
    assert capfd.readouterr().err == f"warning: {line}\n"
    assert "1 row (line 3) have an empty text" in line
    for field in fields(plain):
        assert same(getattr(plain, field.name), getattr(data.examples, field.name)), field.name
    assert (plain.texts is not None) == (overlap is not None)
    for name in ("texts", "second", "labels", "lines", "fingerprints"):
        ours, theirs = getattr(data.table, name), getattr(table, name)
        assert (ours is None) == (theirs is None)
        assert ours is None or list(ours) == list(theirs), name


def test_rows_that_are_left_out_of_slices_are_counted_once(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{row}\tA\tB\t{('-', 'neutral')[row % 2]}" for row in range(9)]
    (tmp_path / "a.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tgold_label", *rows]) + "\n")
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 1)
    table = TaskFiles(find_task("classification"), LAYOUTS["glue/mnli"]).read(tmp_path / "a.tsv")
    assert (len(table), table.lines.tolist()) == (4, [3, 5, 7, 9])
    assert capfd.readouterr().err.count("5 rows with the label - are left out") == 1


def test_a_fault_in_a_later_slice_leaves_no_entry(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "a\tb\n" * 5 + "a\n")
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 2)
    with pytest.raises(BrimfulError, match="line 7"):
        TaskFiles(find_task("classification")).read(tmp_path / "a.tsv")
    assert not any(folder.iterdir())


def test_a_full_disk_costs_no_more_than_the_entry(
    tmp_path: Path,
    folder: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fill_disk(folder: Path, make_rows: MakeRows) -> None:
        next(make_rows({}))
        raise OSError(errno.ENOSPC, "No space left on device")

    kind, path = written("classification", tmp_path)
    monkeypatch.setattr(cache, "_write", fill_disk)
    assert list(encoded(kind, path, tokenizer).table.texts) == ["the good", "", "the good"]
    messages = capfd.readouterr().err
    assert messages.count("encoded task files are not kept") == 1
    assert messages.count("have an empty text") == 1


def test_what_decides_the_result_has_an_entry_of_its_own(
    tmp_path: Path, folder: Path, tokenizer: Tokenizer
) -> None:
    kind, path = written("classification", tmp_path)
    files = TaskFiles(kind)
    task = kind.from_labels(["no", "yes"])
    files.encode(task, path, tokenizer, 16, None)
    files.encode(task, path, tokenizer, 16, None)
    assert len(list(folder.iterdir())) == 2
    assert files.encode(task, path, tokenizer, 5, None).examples.max_length == 5
    swapped = files.encode(kind.from_labels(["yes", "no"]), path, tokenizer, 16, None)
    assert swapped.targets["label"].tolist() == [0, 1, 0]
    assert len(list(folder.iterdir())) == 4
    path.write_text(path.read_text().replace("\tno", "\tyes"))
    assert list(TaskFiles(kind).read(path).labels or []) == ["yes", "yes", "yes"]


@pytest.mark.parametrize("damage", ["cut", "changed", "no record"])
def test_a_damaged_entry_is_made_again(
    damage: str, tmp_path: Path, folder: Path, tokenizer: Tokenizer
) -> None:
    kind, path = written("classification", tmp_path)
    before = encoded(kind, path, tokenizer)
    for file in folder.glob("*/columns.arrow"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 255
        if damage == "no record":
            (file.parent / RECORD).unlink()
        else:
            file.write_bytes(content if damage == "changed" else content[:-1])
    after = encoded(kind, path, tokenizer)
    assert list(after.table.texts) == ["the good", "", "the good"]
    assert same(before.examples.targets, after.examples.targets)


def test_warnings_are_repeated(
    tmp_path: Path, folder: Path, tokenizer: Tokenizer, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, path = written("classification", tmp_path)
    encoded(kind, path, tokenizer)
    assert "a.tsv: 1 row (line 3) have an empty text" in capfd.readouterr().err
    path = path.rename(tmp_path / "b.tsv")
    encoded(kind, path, tokenizer)
    assert "b.tsv: 1 row (line 3) have an empty text" in capfd.readouterr().err


def test_it_can_be_off_or_elsewhere(
    tmp_path: Path, folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, path = written("classification", tmp_path)
    monkeypatch.setenv("BRIMFUL_CACHE", "off")
    assert len(encoded(kind, path, tokenizer)) == 3
    assert not folder.exists()
    monkeypatch.delenv("BRIMFUL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "brimful" / "tasks"


def test_the_oldest_entries_go_first(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brimful.base.cache.MAX_CACHE_BYTES", 1)
    kind, path = written("classification", tmp_path)
    for number in range(3):
        path.write_text(f"text\tlabel\n{number}\ta\n")
        assert list(TaskFiles(kind).read(path).texts) == [str(number)]
        assert len(list(folder.iterdir())) == 1


RANK = """
import sys
from pathlib import Path
import torch.distributed as dist
from brimful.base.distributed import World
from brimful.tasks.row_groups import group_alike_rows
from brimful.tasks.cached_tables import TaskFiles
from brimful.tables.layouts import LAYOUTS
from brimful.tasks.registry import find_task
from brimful.tables.table_files import read_table
import os, torch

dist.init_process_group("gloo")
folder, rank = Path(sys.argv[1]), dist.get_rank()
os.environ["BRIMFUL_CACHE"] = str(folder / "cache")
kind = find_task("classification")
def counted(*arguments, **options):
    (folder / f"read-{rank}").touch()
    return read_table(*arguments, **options)
kind.read = counted
ranks = World(rank, 2, torch.device("cpu"))
table = TaskFiles(kind, ranks=ranks).read(folder / "a.tsv")
assert list(table.texts) == ["the good", "", "the good"], table.texts
assert "a.tsv" in str(table.path)
mapped = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else "columns.arrow"
assert "columns.arrow" in mapped
try:
    TaskFiles(kind, ranks=ranks).read(folder / "bad.tsv")
except Exception as error:
    (folder / f"error-{rank}").write_text(str(error))
dist.destroy_process_group()
"""


@pytest.mark.distributed
def test_one_rank_encodes_and_the_other_maps_the_same_file(tmp_path: Path) -> None:
    written("classification", tmp_path)
    (tmp_path / "bad.tsv").write_text("text\nb\n")
    said = on_two_ranks(RANK, tmp_path)
    assert said.count("have an empty text") == 1
    assert (tmp_path / "error-0").read_text() == (tmp_path / "error-1").read_text()
    (tmp_path / "read-0").unlink()


@pytest.mark.parametrize("changed", ["tasks/classification.py", "base/draws.py", "base/randomness.py"])
def test_entries_are_of_all_the_code_that_makes_them(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
