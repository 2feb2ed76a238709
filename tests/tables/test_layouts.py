"""Files of GLUE and CLUE as they are downloaded, and their metrics."""

import json
from pathlib import Path

import numpy as np
import pytest

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import LAYOUTS, Columns, FileLayout, TableOptions, find_layout, require_task
from brimful.tables.table_files import read_file, read_table, read_texts
from brimful.tasks.classification import Classification
from brimful.tasks.registry import find_task
from builders.records import read_named_records
from builders.tables import labelled, write_rows

RECORDS = read_named_records(Path(__file__).parent / "layout_records.txt")


def read_record(name: str) -> tuple[str, list[str], list[str] | None]:
    """The file of a layout, its first texts, its second texts."""
    content, right = RECORDS[name]
    return f"{content}\n", *json.loads(right).values()


@pytest.mark.parametrize("name", RECORDS)
def test_labelled_files(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content, texts, second = read_record(name)
    layout = LAYOUTS[name]
    path = tmp_path / ("train.json" if name.startswith("clue") else "train.tsv")
    path.write_text(content, encoding="utf-8-sig" if name == "glue/mrpc" else "utf-8")
    table = read_file(find_task(layout.task), path, labelled=True, layout=layout)
    assert (list(table.texts), table.second and list(table.second)) == (texts, second)
    said = capfd.readouterr().err
    assert ("1 row (line 3) lack a field of glue/qqp and are left out" in said) == (name == "glue/qqp")
    assert ("1 row with the label - are left out" in said) == (name in ("glue/mnli", "clue/ocnli"))
    assert table.labels is not None
    if layout.labels:
        assert set(table.labels) <= set(layout.labels)
        task = Classification.from_labels(list(layout.labels))
        assert task.with_primary(layout.primary or "accuracy").primary_metric[1] == "highest"
    assert set(RECORDS) | {"glue/ax", "clue/cluener", "clue/cmrc", "squad"} == set(LAYOUTS)


@pytest.mark.parametrize("name", ["glue/mrpc", "clue/ocnli"])
def test_the_same_columns_in_parquet(name: str, tmp_path: Path) -> None:
    content, texts, second = read_record(name)
    if name.startswith("clue"):
        rows = [json.loads(line) for line in content.splitlines()]
    else:
        header, *lines = (line.split("\t") for line in content.splitlines())
        rows = [dict(zip(header, line, strict=True)) for line in lines]
    write_rows(tmp_path / "train.parquet", rows)
    table = read_table(tmp_path / "train.parquet", labelled=True, layout=LAYOUTS[name])
    assert (table.texts, table.second) == (texts, second)


def test_a_row_to_predict_lacks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence1\tsentence2\n0\tA\tB\n1\tC\n", encoding="utf-8")
    with pytest.raises(BrimfulError, match="line 3 has no 'sentence2'"):
        read_texts(path, LAYOUTS["glue/ax"])


def test_a_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BrimfulError, match="did you mean 'glue/mnli'"):
        find_layout(TableOptions(layout="glue/mnil"))
    with pytest.raises(BrimfulError, match="leave out --columns or --layout"):
        find_layout(TableOptions(layout="glue/rte", columns=Columns(text="a")))
    with pytest.raises(BrimfulError, match="for the task regression"):
        require_task(LAYOUTS["glue/sts-b"], "classification")


def test_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("gold,premise,claim\n1,A,B\n0,C,D\n")
    columns = Columns(text="claim", text_b="premise", label="gold")
    table = read_table(path, labelled=True, layout=FileLayout(columns=columns))
    assert (table.texts, table.second, table.labels) == (["B", "D"], ["A", "C"], ["1", "0"])
    with pytest.raises(BrimfulError, match=r"no column 'premises' \(line 2\): did you mean 'premise'"):
        read_table(path, labelled=False, layout=FileLayout(columns=Columns(text="claim", text_b="premises")))
    with pytest.raises(BrimfulError, match="leave out --columns"):
        read_file(find_task("question-answering"), path, labelled=True, layout=FileLayout(columns=columns))


@pytest.mark.parametrize("classes", [2, 4, 60])
def test_metrics_are_those_of_scikit_learn(classes: int, seed: int) -> None:
    """Of sixty classes, some are the label or the prediction of no row."""
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    labels, guesses = random.integers(0, classes, (2, 80))
    guesses[:20] = labels[:20]
    task, answers = Classification([str(c) for c in range(classes)]), np.eye(classes, dtype=np.float32)
    data = labelled("label", labels)
    measured = task.measure(answers[guesses], data)
    assert measured["matthews"] == pytest.approx(metrics.matthews_corrcoef(labels, guesses), abs=1e-12)
    assert measured["f1"] == pytest.approx(metrics.f1_score(labels, guesses, average="macro"), abs=1e-12)
    if classes == 2:
        assert measured["positive_f1"] == pytest.approx(metrics.f1_score(labels, guesses), abs=1e-12)
    assert task.measure(answers[[0] * 80], data)["matthews"] == 0


def test_another_metric_decides() -> None:
    task = Classification(["a", "b"])
    chosen = task.with_primary("f1")
    assert (chosen.primary_metric, task.primary_metric) == (("f1", "highest"), ("accuracy", "highest"))
    with pytest.raises(BrimfulError, match="no metric 'positive_f1'; known: accuracy"):
        Classification(["a", "b", "c"]).with_primary("positive_f1")


def test_files_of_cluener(tmp_path: Path) -> None:
    """Places include their last characters; of spans that overlap the longest stays."""
    labels = {"name": {"叶老桂": [[4, 6]]}, "company": {"浙商银行": [[0, 3]]}}
    rows = [
        {"text": "浙商银行叶老桂", "label": labels},
        {"text": "彭小军说", "label": {"name": {"彭小军": [[0, 2]], "小军": [[1, 2]]}}},
    ]
    train, test = (tmp_path / f"{name}.json" for name in ("train", "test"))
    train.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    layout, task = LAYOUTS["clue/cluener"], find_task("token-classification")
    with record_warnings() as said:
        table = read_file(task, train, labelled=True, layout=layout)
    assert [[tuple(span) for span in spans] for spans in table.labels] == [
        [(0, 4, "company"), (4, 7, "name")],
        [(0, 3, "name")],
    ]
    assert ["1 span left out that overlap" in line for line in said] == [True]
    test.write_text('{"id": 7, "text": "浙商银行叶老桂"}\n', encoding="utf-8")
    assert list(read_file(task, test, labelled=False, layout=layout).texts) == ["浙商银行叶老桂"]
    train.write_text('{"text": "a", "label": {"name": 3}}\n')
    with pytest.raises(BrimfulError, match=r"record 1 is not in the layout clue/cluener"):
        read_file(task, train, labelled=True, layout=layout)


def test_the_starts_of_cmrc_count_utf_16(tmp_path: Path) -> None:
    qas = [{"id": "1", "question": "?", "answers": [{"text": "好", "answer_start": 3}]}]
    data = {"data": [{"paragraphs": [{"context": "𠮷很好", "qas": qas}]}]}
    (tmp_path / "a.json").write_text(json.dumps(data), encoding="utf-8")
    layout = find_layout(TableOptions(layout="clue/cmrc"))
    table = read_file(find_task("question-answering"), tmp_path / "a.json", labelled=True, layout=layout)
    assert table.labels == [[(2, "好")]]
