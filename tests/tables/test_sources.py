"""The column that `--group` names, in the forms of tables that have columns."""

from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.tables.layouts import Columns, FileLayout
from brimful.tables.table_files import read_sources
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.registry import find_task

TASK = {"annotations": [{"result": []}]}
CONTENTS = {
    "a.csv": 'text,label,page\n"one\nline",a,p1\n,,\ntwo,b,p2\n',
    "a.json": '[{"text": "one", "label": "a", "page": "p1"}, {"text": "two", "label": "b", "page": "p2"}]',
    "tasks.json": str([TASK | {"data": {"text": p, "page": p}} for p in ("p1", "p2")]).replace("'", '"'),
}


def sources_of(path: Path, task: str = "classification", column: str = "page", **columns: str) -> list[str]:
    layout = FileLayout(columns=Columns(**columns))
    return read_sources(TaskFiles(find_task(task), layout).read(path), column, layout)


@pytest.mark.parametrize("name", CONTENTS)
def test_forms(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(CONTENTS[name])
    task = "token-classification" if name == "tasks.json" else "classification"
    assert sources_of(tmp_path / name, task) == ["p1", "p2"]


def test_a_pattern_and_numbered_columns(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"one\tx\t{name}1\ntwo\ty\t{name}2\n")
    found = sources_of(tmp_path / "*.txt", column="3", text="1", label="2")
    assert found == ["a1", "a2", "b1", "b2"]


QUESTION = '{"question": "a", "answers": ["A"]}'
SQUAD = f'{{"data": [{{"paragraphs": [{{"context": "A b.", "qas": [{QUESTION}, {QUESTION}]}}]}}]}}'


@pytest.mark.parametrize(
    ("name", "content", "task", "message"),
    [
        ("a.tsv", "text\tlabel\tpages\na\tb\tc\n", "classification", "no column 'page' for --group.*'pages'"),
        ("a.tsv", "text\tlabel\tpage\na\tb\tc\nd\te\t\n", "classification", "line 3: the column 'page'"),
        ("a.json", SQUAD, "question-answering", "--group"),
    ],
)
def test_a_missing_column_or_value_is_refused(name, content, task, message, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BrimfulError, match=message):
        sources_of(tmp_path / name, task)
