"""The example and the model card of an export."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brimful import Encoder, export
from brimful.base.errors import BrimfulError
from brimful.exporting.exported_model import Export
from brimful.exporting.formats import FORMATS
from brimful.exporting.summary_and_card import fill_card, summarise_export
from brimful.hf.folders import save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import TextReading
from brimful.model.heads import MaskedLMHead, SequenceHead, SpanHead, TokenHead
from builders.task_models import new_encoder


@pytest.fixture
def encoder():
    return new_encoder()


FACTS = {"model": "BertModel", "parameters": 9, "pieces": 8, "format": "hf"}


def page_of(export: Export, form: str = "hf", name: str = "m", **facts: Any) -> str:
    """The card of a model that is exported from nowhere."""
    return fill_card(export, FORMATS[form], name, summarise_export(FACTS | facts))


def made(encoder: Encoder, head: object = None, extra: dict[str, Any] | None = None, **more: Any) -> Export:
    """A model that is exported from nowhere."""
    others = dict(extra or {})
    settings = {"max_length": 20, "problem_type": others.pop("problem_type", None), "extra": others}
    reading = TextReading(20, **more) if head is None else None
    return Export(encoder, head, None, ModelFolder(Path("given")), settings, True, reading)


def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, *texts: str) -> str:
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "brimful"]:
            patch.setitem(sys.modules, name, None)
        patch.setattr(sys, "argv", ["example.py", *texts])
        capsys.readouterr()
        runpy.run_path(str(folder / "example.py"))
    return capsys.readouterr().out


MULTI_LABEL = {"problem_type": "multi_label_classification"}
HEADS = {
    "classes": (lambda encoder: SequenceHead(encoder, 3), {"calibration_temperature": 1.5}, ["a", "b", "c"]),
    "pairs": (lambda encoder: SequenceHead(encoder, 3), {"text_pairs": True}, ["a", "b", "c"]),
    "labels": (lambda encoder: SequenceHead(encoder, 3), MULTI_LABEL, ["a", "b", "c"]),
    "values": (lambda encoder: SequenceHead(encoder, 1), {}, None),
    "tokens": (lambda encoder: TokenHead(encoder, 3), {}, ["O", "B-x", "I-x"]),
    "answers": (SpanHead, {"task_settings": {"no_answer_threshold": -99.0}}, None),
    "words": (MaskedLMHead, {}, None),
    "vectors": (lambda _: None, {}, None),
}


@pytest.mark.parametrize("kind", HEADS)
def test_each_example_predicts_without_brimful(kind, encoder, tmp_path, monkeypatch, capsys):
    make, extra, labels = HEADS[kind]
    head = make(encoder)
    problem = extra.get("problem_type")
    others = {key: value for key, value in extra.items() if key != "problem_type"}
    save_model(tmp_path / "m", encoder, head, labels, max_length=20, problem_type=problem, extra=others)
    text = FORMATS["hf"].example(made(encoder, head, extra))
    (tmp_path / "m" / "example.py").write_text(text, encoding="utf-8")
    texts = ["w1 [MASK] w2 w3", "w4 w5 w6"]
    lines = printed(tmp_path / "m", monkeypatch, capsys, *texts).splitlines()
    cells = [line.split("\t") for line in lines]
    if kind in ("classes", "labels", "values"):
        assert [row[-1] for row in cells] == texts
    if kind == "classes":
        assert all(row[0] in "abc" and 0.3 < float(row[1]) < 1 for row in cells)
    elif kind == "pairs":
        assert (len(cells), cells[0][0] in "abc") == (1, True)
    elif kind == "labels":
        assert all(set(row[:-1]) <= set("abc") for row in cells)
    elif kind == "tokens":
        for tag, word, start, end in cells:
            assert (tag in ("B-x", "I-x"), word) == (True, " ".join(texts)[int(start) : int(end)])
    elif kind == "answers":
        assert lines == [""]
    elif kind == "words":
        assert lines[1].endswith("\t[]")
    elif kind == "vectors":
        assert lines[0] == "(2, 48) float32"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", HEADS)
def test_examples_have_twenty_lines_and_compile(kind, form, encoder):
    make, extra, _ = HEADS[kind]
    if form == "sentence-transformers" and kind not in ("classes", "labels", "values", "vectors"):
        pytest.skip("no such export")
    text = FORMATS[form].example(made(encoder, make(encoder), extra))
    assert sum(bool(line) for line in text.splitlines()) <= 20
    assert ("brimful" in text) is (form == "int8")
    assert max(map(len, text.splitlines())) <= 120
    compile(text, "example.py", "exec")


def test_the_card_says_what_the_run_knows_and_an_edited_one_stays(encoder, tmp_path):
    run = tmp_path / "run"
    save_model(run / "model", encoder, SequenceHead(encoder, 2), ["bad", "good"], max_length=20)
    verdict = "It reaches accuracy 87.5 ± 5.2 % on 40 test rows."
    (run / "summary.json").write_text(json.dumps({"kind": "finetune", "overview": {"verdict": verdict}}))
    # Without the options beside it, a summary is not a run's.
    assert verdict not in page_of(replace(made(encoder), source=ModelFolder(run / "model")))
    (run / "config.yaml").write_text("task: classification\n")
    out = tmp_path / "shop"
    export(run=str(run), out=str(out))
    page = (out / "README.md").read_text(encoding="utf-8")
    assert page.startswith("---\nlicense:  # fill in\n")
    for fact in ("# shop\n", "Labels: bad, good.", f"## Training\n\n{verdict}\n", "data: (fill in)"):
        assert fact in page
    export(run=str(run), out=str(out))  # written by Brimful and unchanged, so it is replaced in silence
    (out / "README.md").write_text(page.replace("(fill in)", "mine"))
    with pytest.raises(BrimfulError, match=r"has README\.md, of your own or edited since"):
        export(run=str(run), out=str(out))
    assert "mine" in (out / "README.md").read_text(encoding="utf-8")


def test_the_card_says_which_part_of_long_texts_is_read(encoder):
    windows = page_of(made(encoder, extra={"window_overlap": 8}))
    assert "Texts are read in windows of 20 tokens that share 8" in windows
    assert "are cut at" not in windows
    assert "Texts are cut at 20 tokens." in page_of(made(encoder))


def test_names_mean_nothing_to_markdown(encoder):
    """Each is a code span on one line, as CommonMark reads it; usual names stay as they are."""
    odd = ["<img src=x>\n---\nlicense: evil\n```", "`a`", "*b*", "c\x1b[31m", "[d](e)"]
    exported = made(encoder, TokenHead(encoder, 6))

    page = page_of(replace(exported, labels=["good", *odd]), name="<m>")
    assert page.count("\n") == page_of(replace(exported, labels=["good"])).count("\n")
    (line,) = [each for each in page.split("\n") if each.startswith("Labels: ")]
    assert line.startswith("Labels: good, ```` <img src=x>")
    assert line.endswith("`` `a` ``, `*b*`, `c\\x1b[31m`, `[d](e)`.")
    assert "# `<m>`" in page
