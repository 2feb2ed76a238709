"""`brimful finetune` with one table: test and dev are cut from it, and other verbs find the same rows."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError, UsageError
from brimful.base.storage import read_json
from brimful.commands.distil import distil
from brimful.commands.export import export
from brimful.commands.finetune import finetune
from brimful.hf.folders import save_model
from brimful.hf.model_folder import ModelFolder
from brimful.stages.held_out import HELD_OUT_FILE
from brimful.stages.run_tables import find_run_tables, read_held_out
from builders.thin_encoders import thin_encoder
from builders.verbs import labelled_rows, write_table

QUICK = {"precision": "fp32", "max_length": 32, "epochs": 0.5, "batch": 16, "ladder": "none"}
STAGES = {"layers": {"epochs": 0.0}, "logits": {"epochs": 0.1}, "student_layers": 1, "precision": "fp32"}


@pytest.fixture(scope="module")
def inputs(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A thin encoder, and a table in which a fifth of the rows are copies of others in another form."""
    folder = tmp_path_factory.mktemp("one")
    save_model(folder / "encoder", thin_encoder(corpus_dir))
    draw, rows = random.Random(1), labelled_rows(600, seed=1)
    rows += [row | {"text": row["text"].upper() + "!"} for row in draw.sample(rows, 150)]
    draw.shuffle(rows)
    return {"encoder": str(folder / "encoder"), "train": write_table(folder / "table.tsv", rows)}


@pytest.fixture(scope="module")
def one(inputs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    finetune(**inputs, **QUICK, out=str(folder))
    return folder


@pytest.fixture
def longer_table(one, inputs: dict[str, str]) -> Iterator[None]:
    """The table has a row more than when `one` was trained."""
    table = Path(inputs["train"])
    before = table.read_bytes()
    table.write_bytes(before + b"one more\tlow\n")
    yield
    table.write_bytes(before)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on stderr, as one line."""
    return " ".join(capsys.readouterr().err.split())


def test_one_table_is_enough(one, inputs, tmp_path, capsys):
    summary, held = read_json(one / "summary.json"), read_json(one / HELD_OUT_FILE)
    assert (summary["train"]["n"], summary["test"]["n"], summary["dev"]["n"]) == (540, 150, 60)
    assert summary["held_out"] == {"test": 150, "dev": 60}
    assert (len(held["test"]), len(held["dev"]), held["dev_in_train"]) == (150, 60, False)
    assert not set(held["test"]) & set(held["dev"])
    lines = Path(inputs["train"]).read_text().splitlines()
    answers = (one / "predictions.jsonl").read_text().splitlines()
    for row, answer in zip(held["test"], answers, strict=True):
        told = json.loads(answer)
        assert (told["row"], told["gold"]) == (row, lines[row].split(chr(9))[1])
    assert not {"leakage", "near leakage"} & {finding["kind"] for finding in summary["findings"]}
    assert finetune(**inputs, **QUICK, out=str(tmp_path / "dry"), dry_run=True)["test"] == 150
    told = said(capsys)
    assert "150 test and 60 dev rows; alike texts stay together, labels keep their proportions" in told
    assert "rows of one source may stand on both sides (--group COLUMN keeps them together)" in told
    assert not (tmp_path / "dry").exists()


def test_rows_of_one_source_stay_on_one_side(inputs, tmp_path, capsys):
    rows = [row | {"page": f"page {number % 40}"} for number, row in enumerate(labelled_rows(800, seed=2))]
    table = write_table(tmp_path / "pages.tsv", rows)
    given = {"encoder": inputs["encoder"], "train": table, "group": "page", **QUICK}
    finetune(**given, out=str(tmp_path / "run"))
    assert "rows with the same page stay together" in said(capsys)
    held_out = read_held_out(tmp_path / "run", table).parts
    assert 120 <= len(held_out["test"]) <= 200
    pages = {name: {row % 40 for row in rows.tolist()} for name, rows in held_out.items()}
    assert [len(rows) for rows in held_out.values()] == [20 * len(own) for own in pages.values()]
    assert pages["test"].isdisjoint(pages["dev"])
    for wrong, message in (
        ({"group": "pages"}, "has no column 'pages' for --group: did you mean 'page'"),
        ({"test": table, "dev": table}, "--group is for rows that are cut from train"),
    ):
        with pytest.raises(BrimfulError, match=message):
            finetune(**given | wrong, out=str(tmp_path / "wrong"))


def test_a_student_has_the_same_test_and_dev_and_learns_neither(one, inputs, tmp_path, capsys):
    held = read_held_out(one, inputs["train"])
    lines = Path(inputs["train"]).read_text().splitlines()[1:]
    texts = [line.split("\t")[0] for line in lines]
    test, dev = ([texts[row] for row in rows if len(texts[row]) > 40] for rows in held.parts.values())
    copies = [test[0].upper(), f"{test[1]} 7!", f"{dev[0]}?"]
    (tmp_path / "more.txt").write_text("\n".join([*copies, "a text of its own"]) + "\n")
    more = {"unlabelled": [str(tmp_path / "more.txt")]}
    for name, given in (("a", more), ("b", {"train": inputs["train"]})):
        summary = distil(teacher=str(one), out=str(tmp_path / name), **STAGES, **given)
        assert summary["test"]["n"] == 150
        assert summary["texts"] == 540 + (name == "a")
    assert summary["teacher"]["accuracy"] == read_json(one / "summary.json")["test"]["accuracy"]
    assert "more.txt: left out 3 texts, equal or nearly equal to test or dev rows" in capsys.readouterr().err
    with pytest.raises(UsageError, match="may hold them or copies of them: give --test too"):
        distil(teacher=str(one), out=str(tmp_path / "c"), train=str(tmp_path / "more.txt"), **STAGES)


@pytest.mark.slow
def test_an_export_is_compared_on_the_rows_held_out(one, inputs, tmp_path):
    """The export of a student is compared on the rows of its teacher's run, whatever texts calibrate it."""
    held = read_held_out(one, inputs["train"])
    distil(teacher=str(one), out=str(tmp_path / "student"), **STAGES)
    (tmp_path / "more.txt").write_text("a text of its own\n")
    given = {"calibrate": str(tmp_path / "more.txt"), "format": "onnx-int8", "most_loss": 1.0}
    gate = export(run=str(tmp_path / "student"), out=str(tmp_path / "export"), **given)["gate"]
    assert (gate["texts"], gate["file"]) == (150, "table.tsv, its test rows")
    accuracy = read_json(tmp_path / "student" / "summary.json")["student"]["accuracy"]
    assert (gate["metric"], gate["before"]) == ("accuracy", pytest.approx(accuracy, abs=0.02))
    tables = find_run_tables(ModelFolder.open(tmp_path / "student", "model"))
    assert tables.train == Path(inputs["train"])
    held_out = {name: rows.tolist() for name, rows in tables.held_out.items()}
    assert held_out == {name: rows.tolist() for name, rows in held.parts.items()}


@pytest.mark.usefixtures("longer_table")
def test_a_table_that_has_changed_is_known_by_its_bytes(one, tmp_path, capsys):
    """It teaches no student, and no export is compared on its rows."""
    with pytest.raises(BrimfulError, match=r"is not what .* was trained on"):
        distil(teacher=str(one), out=str(tmp_path / "a"), student_layers=1)
    capsys.readouterr()
    with pytest.raises(BrimfulError, match="name some with --test TABLE"):
        export(run=str(one), out=str(tmp_path / "b"), format="onnx-int8", most_loss=1.0)
    assert "that were held out are not known, so it is left out" in said(capsys)


@pytest.mark.slow
def test_what_one_table_can_be(inputs, tmp_path, capsys):
    small = write_table(tmp_path / "small.tsv", labelled_rows(300, seed=3))
    found = finetune(encoder=inputs["encoder"], train=small, out=str(tmp_path / "small"), dry_run=True)
    assert (found["train"], found["test"]) == (240, 60)
    assert "dev" not in found
    whole = {**inputs, "out": str(tmp_path / "whole"), "dry_run": True}
    assert finetune(**whole, dev="none")["train"] == 600
    rates = finetune(**whole, learning_rates=[1e-4, 1e-3])
    assert (rates["train"], rates["dev"], rates["test"]) == (600, 120, 150)
    assert "the final training reads dev too" in said(capsys)
    with pytest.raises(BrimfulError, match="--dev none goes with one learning rate"):
        finetune(**whole, dev="none", learning_rates=[1e-4, 1e-3])


def test_labels_of_a_row_each_leave_probabilities_as_they_are(inputs, tmp_path, capsys):
    rows = [row | {"label": f"label {number}"} for number, row in enumerate(labelled_rows(520, seed=4))]
    train = write_table(tmp_path / "train.tsv", rows)
    given = {"encoder": inputs["encoder"], "train": train, "test": train, "out": str(tmp_path / "run")}
    found = finetune(**given, dry_run=True)
    assert found["train"] == 520
    assert "dev" not in found
    assert re.search("probabilities are not calibrated: .*give --dev", said(capsys))
