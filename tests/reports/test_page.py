"""The report: self-contained, escaped, the same bytes each time, whatever files a run has."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from brimful import report
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.summary import OVERVIEW, MeasuredOn, ModelResult, Summary, SummaryTable, with_overview
from brimful.cli.main import main
from brimful.reports.page import group_models
from brimful.reports.run_records import load_runs

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "path", "use", "br", "link"}
TEST = MeasuredOn("accuracy", 400, "f1", share=True)
OTHER_ROWS = MeasuredOn("accuracy", 400, "f2", share=True)


def write_run(
    directory: Path,
    facts: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    metrics: list[dict[str, Any]] | None = None,
    summary: Summary | None = None,
    record: str = "summary.json",
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    if facts is not None:
        value = with_overview(facts, summary) if summary is not None else facts
        (directory / record).write_text(json.dumps(value), encoding="utf-8")
    if config is not None:
        (directory / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    if metrics is not None:
        lines = "".join(json.dumps(line) + "\n" for line in metrics)
        (directory / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return directory


def curve(steps: int, *terms: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        losses = {f"loss.{term}": (place + 1) * 50 / step for place, term in enumerate(terms)}
        lines.append({"step": step, "learning_rate": 1e-3 / step, "tokens": 1000 * step, **losses})
        if step % 50 == 0:
            lines.append({"step": step, "validation.loss": 60 / step, "validation.accuracy": step / 1000})
    return lines


def model(name: str, value: float, **values: Any) -> ModelResult:
    return ModelResult(name=name, value=value, error=0.01, **values)


def measured(*models: ModelResult, test: MeasuredOn = TEST) -> Summary:
    tables = [SummaryTable("Result", ["", ""], [["Time", "3 s"], [HOSTILE, "x"]])]
    return Summary("Fine-tuned", f"It ended. {HOSTILE}", tables, [], test, list(models))


@pytest.fixture
def finetune_run(tmp_path):
    own = model("Fine-tuned encoder", 0.9, is_own=True, milliseconds=4.0, pairs={"TF-IDF": 0.004})
    summary = measured(own, model("TF-IDF", 0.85, role="baseline", milliseconds=0.5))
    run = write_run(tmp_path / "finetune", {"steps": 3}, {"encoder": HOSTILE}, curve(300, "classes"), summary)
    for rate in ("0.0003", "0.001"):
        write_run(run / "trials" / "seed-0" / f"rate-{rate}-试", metrics=curve(300, "classes"))
    return run


@pytest.fixture
def distil_run(tmp_path, finetune_run):
    summary = measured(
        model("Student", 0.89, is_own=True, milliseconds=2.0, pairs={"Teacher": 0.003}),
        model("Teacher", 0.9, folder=str(finetune_run), megabytes=20.0, milliseconds=5.0),
        model("TF-IDF", 0.84, role="baseline"),
    )
    return write_run(tmp_path / "student", {"steps": 3}, summary=summary)


def page_of(tmp_path: Path, *runs: Path) -> str:
    out = tmp_path / "report.html"
    result = report(runs=[str(run) for run in runs], out=str(out))
    text = out.read_text(encoding="utf-8")
    facts = {name: value for name, value in result.items() if name != OVERVIEW}
    assert facts == {"out": str(out), "runs": len(runs), "bytes": len(text.encode())}
    return text


class _Page(HTMLParser):
    """Checks that elements close in order; collects text, anchors and the svg descriptions."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.anchors: list[str] = []
        self.charts: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        if tag == "svg":
            self.charts.append(values["aria-label"] or "")
        self.anchors += [str(values["id"])] if tag == "section" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_run_shows_its_verdict_tables_curves_facts_and_configuration(tmp_path, finetune_run):
    page = _Page(page_of(tmp_path, finetune_run))
    for shown in ("Fine-tuned", "It ended.", "Behind the best", "TF-IDF", "Time", "encoder:", "steps"):
        assert shown in page.text
    titles = [chart.partition(",")[0] for chart in page.charts]
    assert titles == ["Accuracy against ms a text", "Loss", "Validation: accuracy", "Learning rate"]
    assert "trials/seed-0/rate-0.001-试" in page.charts[1]


def test_models_of_the_same_rows_stand_in_one_table_and_one_picture(tmp_path, finetune_run, distil_run):
    ((test, models),) = group_models(load_runs([finetune_run, distil_run])).items()
    assert test == TEST
    names = [model.name for model in models]
    assert names == ["finetune", "TF-IDF", "student", "TF-IDF, in student"], "the teacher stands once"
    assert models[2].pairs == {"finetune": 0.003}
    assert models[0].milliseconds == 5.0, "the time that was taken beside the student's"
    ((_, turned),) = group_models(load_runs([distil_run, finetune_run])).items()
    assert {model.name: model.milliseconds for model in turned}["finetune"] == 5.0
    page = _Page(page_of(tmp_path, finetune_run, distil_run))
    assert "finetune is the best, accuracy 90.0" in page.text
    assert sum(chart.startswith("Accuracy against ms a text") for chart in page.charts) == 3
    summary = measured(model("x", 0.99, is_own=True), test=OTHER_ROWS)
    other = write_run(tmp_path / "other", {"a": 1}, summary=summary)
    assert set(group_models(load_runs([finetune_run, other]))) == {TEST, OTHER_ROWS}


def test_a_run_with_models_speaks_for_the_runs_inside_it(tmp_path):
    demo = write_run(tmp_path / "demo", {"a": 1}, summary=measured(model("Student", 0.8)))
    write_run(demo / "distil", {"a": 1}, summary=measured(model("Student", 0.7, is_own=True)))
    (models,) = group_models(load_runs([demo])).values()
    assert [model.value for model in models] == [0.8]
    assert _Page(page_of(tmp_path, demo)).anchors == ["run-1", "run-1-1"]


def test_runs_of_one_name_are_named_by_their_parents_too(tmp_path):
    runs = [write_run(tmp_path / parent / "run", {"a": 1}) for parent in ("a", "b")]
    assert [run.name for run in load_runs(runs)] == ["a/run", "b/run"]


def test_every_text_from_outside_is_escaped(tmp_path, finetune_run):
    hostile = write_run(tmp_path / '"><img src=x>', {"kind": "run", HOSTILE: {"a": HOSTILE, "b": "\ud800"}})
    write_run(hostile / "stages" / "<img src=x>", metrics=curve(20, HOSTILE))
    text = page_of(tmp_path, finetune_run, hostile)
    page = _Page(text)
    assert HOSTILE in page.text  # as text
    assert not page.tags & {"script", "img", "iframe", "object", "link"}
    assert "<img" not in text
    # The page needs nothing from elsewhere.
    assert not re.search(r"https?://|@import|<link|<script", text)
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r'(?:href|src)="(.)', text)) <= {"#"}


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(tmp_path, finetune_run):
    out = tmp_path / "other.html"
    command = [sys.executable, "-m", "brimful", "report", str(finetune_run), "--out", str(out)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": "1"}, stdout=subprocess.DEVNULL)
    assert out.read_text(encoding="utf-8") == page_of(tmp_path, finetune_run)


def test_an_unfinished_run_shows_what_it_has(tmp_path):
    run = write_run(tmp_path / "run", None, {"trainer": {"steps": 3000}}, curve(120, "mlm"))
    page = _Page(page_of(tmp_path, run))
    assert "unfinished" in page.text
    assert "It has logged 120 updates" in page.text
    assert page.charts


@pytest.mark.parametrize("record", ["summary.json", "MANIFEST.json", "export.json"])
def test_a_record_of_an_earlier_version_shows_its_facts(tmp_path, record):
    facts = {"tokens": 58_000, "test": {"accuracy": 0.81}}
    written = {"summary": facts} if record == "MANIFEST.json" else facts
    page = _Page(page_of(tmp_path, write_run(tmp_path / "run", written, record=record)))
    assert "earlier version" in page.text
    assert "test.accuracy" in page.text
    assert "58,000" in page.text


def test_odd_metrics_are_left_out(tmp_path):
    odd = [{"step": 1, "loss.a": None}, {"loss.a": 1.0}, {"step": "x", "loss.a": 2}, {"step": 3, "note": "y"}]
    assert _Page(page_of(tmp_path, write_run(tmp_path / "run", {"a": 1}, metrics=odd))).charts == []


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("", None, "does not exist"),
        ("note.txt", "x", "config.yaml, metrics.jsonl, summary.json, MANIFEST.json, export.json"),
        ("metrics.jsonl", "{\n{}\n", "line 1"),
        ("summary.json", '{"overview": {"title": 1}}', "overview"),
        ("config.yaml", "a: [", "config.yaml"),
    ],
)
def test_a_run_that_cannot_be_read(tmp_path, name, content, named):
    if content is not None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / name).write_text(content)
    with pytest.raises(BrimfulError, match=named):
        report(runs=[str(tmp_path / "run")], out=str(tmp_path / "report.html"))
    assert not (tmp_path / "report.html").exists()


def test_an_out_that_is_no_page_and_no_runs_are_refused(tmp_path, finetune_run):
    record = finetune_run / "summary.json"
    for out, message in ((record, r"must end in \.html"), (record / "page.html", "summary.json is a file")):
        with pytest.raises(BrimfulError, match=message):
            report(runs=[str(finetune_run)], out=str(out))
    with pytest.raises(UsageError, match="at least one run"):
        report(runs=[], out="report.html")


def test_a_terminal_compares_the_models_of_several_runs(tmp_path, finetune_run, distil_run, capsys):
    out = tmp_path / "new" / "report.html"
    runs = [str(finetune_run), str(distil_run)]
    assert report(runs=runs, out=str(out), dry_run=True) == {"dry_run": True, "runs": 2}
    assert not out.exists()
    assert main(["report", *runs, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{out}: finetune is the best, accuracy 90.0 ")
    assert all(f"\n  {name} " in printed for name in ("finetune", "student", "TF-IDF"))
