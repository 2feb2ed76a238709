"""The report: self-contained, escaped, the same bytes each time, and content with whatever a run holds."""

import itertools
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

from brimful.base.errors import BrimfulError, UsageError
from brimful.cli.main import main
from brimful.commands.report import report
from brimful.reports.content import duration, facts, percent, plain, plus_minus, points, short, tick
from brimful.reports.load import load_run
from brimful.tasks.regression import Regression
from brimful.tasks.task import Metric

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "path", "use", "br", "link"}


def write_run(
    directory: Path,
    summary: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    metrics: list[dict[str, Any]] | None = None,
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    if summary is not None:
        (directory / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    if config is not None:
        (directory / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    if metrics is not None:
        lines = "".join(json.dumps(line) + "\n" for line in metrics)
        (directory / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return directory


def curve(steps: int, *terms: str, validation: bool = True) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        line = {"step": step, "learning_rate": 1e-3 / step, "gradient_norm": 1.0, "tokens": 1000 * step}
        losses = {f"loss.{term}": (place + 1) * 50 / step for place, term in enumerate(terms)}
        lines.append(line | losses | {"tokens_per_second": 5000.0, "seconds": step / 5})
        if validation and step % 100 == 0:
            lines.append({"step": step, "validation.loss": 60 / step, "validation.accuracy": step / 1000})
    return lines


PRETRAIN = {
    "kind": "pretrain",
    "steps": 500,
    "tokens": 500_000,
    "tokens_per_second": 5000.0,
    "seconds": 100.0,
    "parameters": 5_243_392,
    "precision": "fp32",
    "validation": {"loss": 4.487, "accuracy": 0.309, "perplexity": 88.9},
    "packing": {"efficiency": 0.9963, "padded_efficiency": 0.4127, "capacity": 1024, "max_length": 256},
    "versions": {"torch": "2.13.0"},
    "verdict": {
        "bound": "straggler",
        "share": 0.31,
        "next": "rank 5 is the slowest",
        "unigram_entropy": 6.9,
        "loss_is_normal": True,
    },
}
FINETUNE = {
    "kind": "finetune",
    "test": {
        "accuracy": 0.8121,
        "f1": 0.8106,
        "n": 3486,
        "accuracy_std": 0.004,
        "accuracy_runs": [0.81, 0.82],
    },
    "dev": {"accuracy": 0.815, "n": 400},
    "learning_rate": 3e-4,
    "trials": [
        {"seed": 0, "learning_rate": 3e-4, "dev_accuracy": 0.815},
        {"seed": 0, "learning_rate": 1e-3, "dev_accuracy": 0.79},
    ],
    "labels": ["好评", HOSTILE],
    "parameters": 5_243_392,
    "seconds": 70.5,
    "leaked_test_texts": 3,
}
DEMO = {
    "kind": "demo",
    "accuracy": {
        "pretrained": 0.812,
        "random_init": 0.775,
        "tfidf": 0.818,
        "student": 0.8,
        "student_undistilled": 0.774,
        HOSTILE: 0.5,
    },
    "accuracy_standard_error": {"pretrained": 0.0066, "random_init": 0.0071, "student": 0.0068},
    "comparisons": {
        "pretrained_minus_random_init": {"difference": 0.037, "standard_error": 0.006},
        "pretrained_minus_tfidf": {"difference": -0.006, "standard_error": 0.0066},
    },
    "test": {"n": 3486},
    "data": {"reviews": 35_000, "unique": 17_369, "conflicting": 47},
    "packing": {"efficiency": 0.9963, "padded_efficiency": 0.4127},
    "models": {
        "tfidf": {"parameters": 145_000, "size_mb": 2.3, "latency_ms": 0.41},
        "teacher": {
            "parameters": 5_242_880,
            "size_mb": 21.0,
            "latency_ms": 4.1,
            "tokens_per_second": 16_200.0,
        },
        "student": {
            "parameters": 3_145_728,
            "size_mb": 12.6,
            "latency_ms": 1.9,
            "tokens_per_second": 33_100.0,
        },
    },
    "export": {"max_abs_logit_difference": {"hf": 2.1e-6, "onnx": 3.4e-6}},
    "seconds": {"prepare": 14.2, "pretrain": 589.0, "finetune": 213.0, "total": 958.3},
}


@pytest.fixture
def pretrain_run(tmp_path: Path) -> Path:
    config = {"data": "data", "masking": {"rate": 0.3}, "trainer": {"steps": 500}, "note": HOSTILE}
    return write_run(tmp_path / "pretrain", PRETRAIN, config, curve(500, "mlm"))


@pytest.fixture
def finetune_run(tmp_path: Path) -> Path:
    run = write_run(tmp_path / "finetune", FINETUNE, {"encoder": HOSTILE}, curve(300, "classification"))
    for rate in ("0.0003", "0.001"):
        write_run(run / "trials" / "seed-0" / f"rate-{rate}-试", metrics=curve(300, "classification"))
    return run


@pytest.fixture
def demo_run(tmp_path: Path) -> Path:
    demo = write_run(tmp_path / "demo", DEMO, {"out": "runs/demo"})
    write_run(demo / "data", {"kind": "prepare", "documents": 17_369, "dropped": {"duplicate": 17_631}})
    write_run(demo / "pretrain", PRETRAIN, {"masking": {}}, curve(200, "mlm"))
    distil = {"kind": "distil", "teacher": {"accuracy": 0.81, "parameters": 5_000_000}, "test": {"n": 10}}
    write_run(demo / "distil", distil | {"student": {"accuracy": 0.8, "parameters": 3_000_000}})
    write_run(
        demo / "distil" / "stages" / "layers", metrics=curve(200, "hidden", "attention", validation=False)
    )
    write_run(demo / "export", {"kind": "export", "format": "onnx"})
    return demo


def page_of(tmp_path: Path, *runs: Path) -> str:
    out = tmp_path / "report.html"
    result = report(runs=[str(run) for run in runs], out=str(out))
    text = out.read_text(encoding="utf-8")
    assert result == {"out": str(out), "runs": len(runs), "bytes": len(text.encode())}
    return text


class _Page(HTMLParser):
    """Checks that elements close in order; collects text, headings and the svg descriptions."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.charts: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "svg":
            self.charts.append(dict(attrs)["aria-label"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_pretraining_shows_figures_curves_and_configuration(tmp_path: Path, pretrain_run: Path) -> None:
    page = _Page(page_of(tmp_path, pretrain_run))
    for text in (
        "4.49",
        "perplexity 88.9",
        "99.63\u202f%",
        "41.3\u202f% with padding",
        "2.13.0",
        "Its speed is limited by straggler, 31.0\u202f% of the time: rank 5 is the slowest.",
        "That is normal: the unigram entropy of the corpus is 6.90.",
        "rate: 0.3",
    ):
        assert text in page.text
    assert [chart.split(":")[0] for chart in page.charts] == [
        "Loss over real tokens",
        "Validation over real tokens",
        "Learning rate over real tokens",
        "Gradient norm over real tokens",
        "Real tokens/s over real tokens",
    ]
    assert "training from 5 to" in page.charts[0]
    assert "unfinished" not in page.text


def test_a_pretraining_says_that_it_knows_its_own_text_better(tmp_path: Path, pretrain_run: Path) -> None:
    page = _Page(page_of(tmp_path, pretrain_run))  # ends with a loss of training of 0.1
    assert "The loss on held-out text is 4.49, that of training at its end 0.1" in page.text
    alike = curve(50, "mlm")
    for line in alike:
        line["loss.mlm"] = 4.4
    page = _Page(page_of(tmp_path, write_run(tmp_path / "alike", PRETRAIN, {"masking": {}}, alike)))
    assert "that of training" not in page.text


def test_finetuning_shows_metrics_trials_and_leaks(tmp_path: Path, finetune_run: Path) -> None:
    page = _Page(page_of(tmp_path, finetune_run))
    for text in (
        "81.2\u202f±\u202f0.4\u202f%",
        "± is the deviation over 2 seeds.",
        "3 test texts are also",
        "81.5\u202f%",
        "好评",
    ):
        assert text in page.text
    assert any(chart.startswith("Trials: dev accuracy over updates: seed-0/rate-") for chart in page.charts)


def test_demo_compares_the_models_and_shows_its_runs(tmp_path: Path, demo_run: Path) -> None:
    page = _Page(page_of(tmp_path, demo_run))
    for text in (
        "80.0\u202f% of 3,486 test reviews right: 98.5\u202f% of its teacher’s accuracy (a difference",
        "with an unknown error) at 2.2 times",
        "3.7 points ahead of the same encoder from random weights and 0.6 points behind TF-IDF with",
        "(which may be chance)",
        "17,369",
        "Encoder, pretrained \u2212 TF-IDF + logistic regression",
        "No model here is ahead of TF-IDF + logistic regression, a baseline that no verb writes: 81.8\u202f%",
        "12.6\u202fMB",
        "3.4e-6",
    ):
        assert text in page.text
    assert [chart.split(":")[0] for chart in page.charts[:4]] == [
        "Accuracy against the time of one text",
        "Accuracy on the test reviews",
        "Real tokens against padding",
        "Time of each stage",
    ]
    assert page.charts[2].endswith("Packed rows 99.63\u202f%; One text a row 41.3\u202f%")
    assert "prepare 14\u202fs; pretrain 9\u202fmin 49\u202fs" in page.charts[3]
    assert any(chart.startswith("layers: losses over updates: hidden from 5 to") for chart in page.charts)
    names = [run.name for run in load_run(demo_run).children]
    assert names == ["data", "pretrain", "distil", "export"]


@pytest.mark.parametrize(
    ("metric", "values", "sentence"),
    [
        (Metric("r", "correlation"), (0.4, 0.8), "keeps 50.0\u202f% of its teacher’s correlation with"),
        (Metric("r", "correlation"), (0.1, -0.2), "’s correlation is 0.1 against its teacher’s -0.2 with"),
        (
            Metric("mse", "error", best="lowest"),
            (0.5, 0.25),
            "’s error is 0.5 against its teacher’s 0.25 with",
        ),
    ],
)
def test_a_student_is_compared_with_its_teacher(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    metric: Metric,
    values: tuple[float, float],
    sentence: str,
) -> None:
    monkeypatch.setattr(Regression, "metrics", (metric,))
    models = zip(("student", "teacher"), values, (3_000_000, 5_000_000), strict=True)
    summary = {model: {metric.name: value, "parameters": size} for model, value, size in models}
    run = write_run(tmp_path / "run", summary | {"kind": "distil", "task": "regression"})
    page = _Page(page_of(tmp_path, run))
    assert f"{sentence} 60.0\u202f% of its parameters." in page.text
    assert f"Student {metric.title}" in page.text


def test_every_text_from_outside_is_escaped(
    tmp_path: Path, pretrain_run: Path, finetune_run: Path, demo_run: Path
) -> None:
    hostile = write_run(tmp_path / '"><img src=x>', {"kind": "run", HOSTILE: {"a": HOSTILE, "b": "\ud800"}})
    write_run(hostile / "stages" / "<img src=x>", metrics=[{"step": 1, f"loss.{HOSTILE}": 1.0}])
    text = page_of(tmp_path, pretrain_run, finetune_run, demo_run, hostile)
    page = _Page(text)
    assert HOSTILE in page.text  # as text
    assert not page.tags & {"script", "img", "iframe", "object", "link"}
    assert "<img" not in text


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path, pretrain_run: Path, demo_run: Path) -> None:
    text = page_of(tmp_path, pretrain_run, demo_run)
    assert not re.search(r"https?://|@import|<link|<script", text)
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r'(?:href|src)="(.)', text)) <= {"#"}


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(tmp_path: Path, demo_run: Path) -> None:
    out = tmp_path / "other.html"
    command = [sys.executable, "-m", "brimful", "report", str(demo_run), "--out", str(out)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": "1"}, stdout=subprocess.DEVNULL)
    assert out.read_text(encoding="utf-8") == page_of(tmp_path, demo_run)


def test_an_unfinished_run_is_shown_as_such(tmp_path: Path) -> None:
    config = {"masking": {}, "trainer": {"steps": 3000}}
    page = _Page(page_of(tmp_path, write_run(tmp_path / "run", None, config, curve(120, "mlm"))))
    assert "unfinished" in page.text
    assert "logged 120 of 3,000 updates" in page.text
    assert len(page.charts) == 4  # one evaluation makes no curve of its own
    page = _Page(page_of(tmp_path, write_run(tmp_path / "begun", None, {"encoder": "e"})))
    assert "not finished: it has no summary.json" in page.text


CORPUS: dict[str, Any] = {
    "summary": {
        "documents": {"read": 300, "pieces": 4, "kept": 290, "validation": 3},
        "dropped": {"too short": 4, "duplicate": 10},
        "cleaned": {"entities": 17, HOSTILE: 2},
        "characters": 90_000,
        "tokens": 58_000,
        "tokens_per_character": 0.6444,
        "unknown_token_rate": 0.001,
        "scripts": {"Han": {"characters": 50_000, "tokens": 50_000, "unknown": 3}},
        "shards": 2,
        "vocabulary_size": 8000,
        "warnings": [f"a.txt: broken records: 1 {HOSTILE}"],
    },
    "length_histogram": {"lengths": "1 5 200", "counts": "2 30 258"},
    "inputs": [{"path": "a.txt"}, {"path": "a.txt"}, {"path": "b.txt"}],
}


def write_corpus(directory: Path, manifest: dict[str, Any]) -> Path:
    write_run(directory, None, {"paths": ["a.txt"]})
    (directory / "MANIFEST.json").write_text(json.dumps(manifest), encoding="utf-8")
    return directory


def test_a_prepared_folder_shows_what_was_read_dropped_and_cleaned(tmp_path: Path) -> None:
    page = _Page(page_of(tmp_path, write_corpus(tmp_path / "data", CORPUS)))
    for text in (
        "300 documents were read from 2 files",
        "290 were kept",
        "14 were dropped: duplicate 10, too short 4",
        "95.4\u202f% of all",
        "58\u202fk",
        "a.txt: broken records",
        HOSTILE,
    ):
        assert text in page.text
    assert page.charts == [
        "Kept documents by length by tokens: 1 to 1: 2; 2 to 3: 0; 4 to 7: 30; 8 to 15: 0; 16 to 31: 0; "
        "32 to 63: 0; 64 to 127: 0; 128 to 255: 258",
        "Documents dropped, by reason: duplicate 10; too short 4",
        f"Changed by cleaning: entities 17; {HOSTILE} 2",
    ]
    assert "unfinished" not in page.text


def test_a_prepared_folder_inside_a_demo_is_finished(tmp_path: Path) -> None:
    write_corpus(tmp_path / "demo" / "data", CORPUS)
    assert [(run.kind, run.finished) for run in load_run(tmp_path / "demo").children] == [("prepare", True)]


def test_a_preparation_that_is_not_finished_is_shown_as_such(tmp_path: Path) -> None:
    page = _Page(page_of(tmp_path, write_run(tmp_path / "data", None, {"paths": ["a.txt"]})))
    assert "not finished" in page.text
    assert "MANIFEST.json" in page.text


@pytest.mark.parametrize("key", [*CORPUS, *CORPUS["summary"]])
def test_any_count_of_a_corpus_may_be_absent(tmp_path: Path, key: str) -> None:
    summary = {name: value for name, value in CORPUS["summary"].items() if name != key}
    manifest = {**CORPUS, "summary": summary}
    manifest.pop(key, None)
    page_of(tmp_path, write_corpus(tmp_path / "data", manifest))


def test_an_unfinished_demo_shows_the_runs_in_it(tmp_path: Path) -> None:
    write_run(tmp_path / "demo" / "pretrain", PRETRAIN)
    run = load_run(tmp_path / "demo")
    assert (run.kind, run.finished, run.children[0].kind) == ("demo", False, "pretrain")
    assert "88.9" in page_of(tmp_path, tmp_path / "demo")


@pytest.mark.parametrize(
    "summary", [PRETRAIN, FINETUNE, DEMO, {"kind": "distil"}, {"kind": "new", "x": [{"y": 1}]}]
)
def test_any_figure_may_be_absent_or_of_another_kind(tmp_path: Path, summary: dict[str, Any]) -> None:
    odd: list[Any] = [None, "text", float("nan"), [], [1], {}, {"accuracy": None, "a": {"b": {}}}]
    keys = [key for key in summary if key != "kind"]
    for key, value in zip(keys, itertools.cycle(odd)):
        page_of(tmp_path, write_run(tmp_path / "run", summary | {key: value}))
    page_of(tmp_path, write_run(tmp_path / "run", {"kind": summary["kind"]}))


def test_odd_metrics_are_left_out(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": 1, "loss.mlm": float("nan"), "learning_rate": None, "tokens": 5, "seconds": 0.0},
        {"loss.mlm": 2.0},
        {"step": 2, "loss.mlm": 0, "validation.loss": "x", "tokens": "y"},
    ]
    page = _Page(page_of(tmp_path, write_run(tmp_path / "run", {"kind": "pretrain"}, metrics=lines)))
    assert page.charts == ["Loss over real tokens: training from 0 to 0"]


def test_several_runs_begin_with_a_verdict_and_contents(
    tmp_path: Path, pretrain_run: Path, finetune_run: Path
) -> None:
    page = _Page(page_of(tmp_path, pretrain_run, finetune_run))
    for text in ("2 runs", "finetune: 81.2\u202f% of 3,486 test texts", "Contents"):
        assert text in page.text
    assert "Runs of" not in page.text  # they share no figure


def test_pretrainings_are_compared_by_their_loss(tmp_path: Path, pretrain_run: Path) -> None:
    better = PRETRAIN | {"validation": {"loss": 4.1}}
    other = write_run(tmp_path / "other", better, {"data": "data", "masking": {}})
    page = _Page(page_of(tmp_path, pretrain_run, other))
    assert "other has the lowest loss on held-out text: 4.10; pretrain 4.49." in page.text
    assert "Runs of pretrain" in page.text
    assert "different data" not in page.text


def test_contents_lead_to_every_part(tmp_path: Path, demo_run: Path) -> None:
    text = page_of(tmp_path, demo_run)
    links = re.findall(r'href="#([^"]+)"', text)
    assert len(links) >= 6
    for link in links:
        assert text.count(f'id="{link}"') == 1
    names = re.findall(r'<details class="run folded"><summary><h\d>(.*)', text)
    assert names == ["data", "export"]


@pytest.mark.parametrize("kind", ["prepare", "pretrain", "finetune", "evaluate", "distil", "export", "run"])
def test_every_run_has_a_verdict(tmp_path: Path, kind: str) -> None:
    summaries: dict[str, dict[str, Any]] = {
        "prepare": {"documents": {"read": 2, "kept": 2}, "input_files": 1},
        "pretrain": PRETRAIN,
        "finetune": FINETUNE,
        "evaluate": {
            "task": "classification",
            "primary_metric": "accuracy",
            "test": {"n": 100},
            "models": [
                {"model": "a, fine-tuned", "accuracy": 0.9, "seconds": 2.0},
                {"model": "b", "accuracy": 0.8, "behind": 0.1, "standard_error": 0.02, "seconds": 1.0},
            ],
        },
        "distil": {"student": {"accuracy": 0.8}, "teacher": {"accuracy": 0.9}},
        "export": {"format": "onnx", "gate": {"texts": 80, "file": "test.tsv", "equal_predictions": 0.99}},
        "run": {"seconds": 3.0},
    }
    text = page_of(tmp_path, write_run(tmp_path / "run", {"kind": kind} | summaries[kind]))
    assert '<p class="verdict">' in text
    if kind == "prepare":
        assert "2 documents were read from 1 file; all were kept." in text


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda d: None, "does not exist"),
        (lambda d: d.mkdir(), "any of config.yaml, metrics.jsonl, summary.json, MANIFEST.json, export.json"),
        (lambda d: d.write_text("x"), "is not a run directory"),
        (lambda d: write_run(d, {}).joinpath("metrics.jsonl").write_text("{\n{}\n"), "line 1 is damaged"),
        (lambda d: write_run(d, {}).joinpath("metrics.jsonl").write_text("[1]\n{}\n"), "line 1 is damaged"),
        (
            lambda d: write_run(d, {}).joinpath("metrics.jsonl").write_bytes(b"\xff\n{}\n"),
            "line 1 is damaged",
        ),
        (lambda d: write_run(d, {}).joinpath("summary.json").write_text("{"), "is not valid JSON"),
        (lambda d: write_run(d, {}).joinpath("summary.json").write_text("[]"), "must hold a JSON object"),
        (lambda d: write_run(d, {}).joinpath("config.yaml").write_text("a: ["), "is not valid YAML"),
    ],
)
def test_a_run_that_cannot_be_read(tmp_path: Path, prepare: Any, message: str) -> None:
    prepare(tmp_path / "run")
    with pytest.raises(BrimfulError, match=message):
        report(runs=[str(tmp_path / "run")], out=str(tmp_path / "report.html"))
    assert not (tmp_path / "report.html").exists()


def test_an_out_that_cannot_be_written(tmp_path: Path, pretrain_run: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.html").mkdir()
    for out, message in (
        (tmp_path, r"must end in \.html"),
        (tmp_path / "folder.html", "it is a folder"),
        (pretrain_run / "summary.json", r"must end in \.html"),
        (tmp_path / "file" / "report.html", "file is a file"),
    ):
        with pytest.raises(BrimfulError, match=message):
            report(runs=[str(pretrain_run)], out=str(out))
    with pytest.raises(UsageError, match="at least one run"):
        report(runs=[], out="report.html")


def test_dry_run_reads_everything_and_writes_nothing(tmp_path: Path, pretrain_run: Path) -> None:
    out = tmp_path / "report.html"
    assert report(runs=[str(pretrain_run)], out=str(out), dry_run=True) == {"dry_run": True, "runs": 1}
    assert not out.exists()


def test_command_line(tmp_path: Path, pretrain_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "report.html"
    assert main(["report", str(pretrain_run), str(pretrain_run), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(out), "runs": 2, "bytes": out.stat().st_size}
    assert main(["report", str(tmp_path / "absent"), "--out", str(out)]) == 1
    assert "absent does not exist" in capsys.readouterr().err


def test_matplotlib_and_torch_are_not_imported_before_they_are_needed() -> None:
    code = "import sys, brimful.commands.report; print({'torch', 'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_figures_as_words() -> None:
    words = [
        percent(0.8213),
        percent(0.99871),
        plus_minus(0.8, 0.007),
        points(-0.006),
        short(4_212_345),
        short(999),
    ]
    assert [word.replace("\u202f", " ") for word in words] == [
        "82.1 %",
        "99.87 %",
        "80.0 ± 0.7 %",
        "\u22120.6",
        "4.21 M",
        "999",
    ]
    assert [duration(s).replace("\u202f", " ") for s in (4.25, 42.3, 59.7, 582, 7500)] == [
        "4.2 s",
        "42 s",
        "1 min 0 s",
        "9 min 42 s",
        "2 h 05 min",
    ]
    assert [tick(v) for v in (0, 2e-4, 0.5, 1500, 3e6, 999_999)] == ["0", "2e-4", "0.5", "1.5k", "3M", "1M"]
    assert [plain(v) for v in (True, None, 12345, 3.4e-6, 0.81234, 12345.6, [1, "a"])] == [
        "yes",
        "none",
        "12,345",
        "3.4e-6",
        "0.8123",
        "12,346",
        "1, a",
    ]
    assert plain("x" * 501) == "x" * 500 + " …"
    assert plain(list(range(41))).endswith("39 … 41 in all")
    deep: dict[str, Any] = {"a_b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}
    assert [(fact.depth, fact.key, fact.value) for fact in facts(deep)][::4] == [
        (0, "a b", ""),
        (4, "f", "{'g': 1}"),
    ]
