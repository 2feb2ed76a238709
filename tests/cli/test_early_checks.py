"""Mistakes that need no model are said before torch is loaded, in the words of the verb itself."""

import json
import subprocess
import sys
from typing import Any

import pytest

from brimful.base.config import build
from brimful.base.errors import BrimfulError
from brimful.base.storage import write_json
from brimful.cli.early_checks import check_inputs
from brimful.cli.main import load_schema, load_verb
from brimful.hf.folders import save_model
from builders.encoders import small, word_tokenizer

NEW = {"encoder": "encoder", "train": "table.tsv", "out": "new"}
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("finetune", {**NEW, "encoder": "none"}, "none holds no model"),
    ("finetune", {**NEW, "train": "none.tsv"}, "cannot read none.tsv: No such file"),
    ("finetune", {**NEW, "train": "table.pdf"}, "table.pdf: tables are .tsv"),
    ("finetune", {**NEW, "train": "other.csv"}, "other.csv has no column 'text'"),
    ("finetune", {**NEW, "out": "full"}, "full is not empty"),
    ("finetune", {**NEW, "out": "table.tsv"}, "it is a file, not a folder"),
    ("finetune", {"train": "table.tsv", "out": "new"}, "finetune needs --encoder, --train and --out"),
    ("finetune", {"resume": "full"}, "full is not a run directory"),
    ("distil", {"teacher": "none", "out": "new"}, "none holds no model"),
    ("distil", {"out": "new"}, "distil needs --teacher and --out"),
    ("distil-encoder", {"teacher": "none", "data": ["data"], "out": "new"}, "none holds"),
    ("evaluate", {"encoders": ["none"], "text": ["table.tsv"], "out": "new"}, "none holds no model"),
    ("evaluate", {"encoders": ["encoder"], "text": ["none.txt"], "out": "new"}, "none.txt does not exist"),
    ("evaluate", {"encoders": ["encoder"], "text": ["table.tsv"], "out": "full"}, "full is not empty"),
    ("evaluate", {"encoders": ["encoder"], "out": "new"}, "evaluate needs --text, or"),
    ("export", {"run": "none", "out": "new"}, "none holds no model"),
    ("export", {"run": "encoder", "out": "full"}, "full is not empty and is not an earlier export"),
    ("export", {"run": "encoder", "out": "exported", "format": "sentence-transformers"}, "in the format hf"),
    ("pretrain", {"data": "none", "out": "new"}, "no prepared corpus: none is not a folder"),
    ("pretrain", {"data": "full", "out": "new"}, "full holds no finished corpus"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with an encoder, tables good and bad, a folder of the user's, and the record of an export."""
    folder = tmp_path_factory.mktemp("early")
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer()
    save_model(folder / "encoder", encoder)
    (folder / "table.tsv").write_text("text\tlabel\none\tyes\ntwo\tno\n")
    (folder / "table.pdf").write_text("text\tlabel\none\tyes\n")
    (folder / "other.csv").write_text("line,label\none,yes\n")
    (folder / "full").mkdir()
    (folder / "full" / "notes.md").write_text("mine")
    (folder / "exported").mkdir()
    write_json(folder / "exported" / "export.json", {"kind": "export", "format": "hf", "files": {}})
    return folder


@pytest.mark.parametrize(("verb", "options", "message"), MISTAKES)
def test_the_verb_says_the_same(place, monkeypatch, verb, options, message):
    monkeypatch.chdir(place)
    config = build(load_schema(verb), options)
    with pytest.raises(BrimfulError) as early:
        check_inputs(verb, config)
    with pytest.raises(BrimfulError) as late:
        load_verb(verb)(config)
    said, known = (str(each.value).replace(f"{place}/", "") for each in (early, late))
    assert message in said
    assert (type(early.value), said) == (type(late.value), known)


def test_they_cost_no_torch(place):
    lines = [[verb, *flags(options)] for verb, options, _ in MISTAKES]
    code = (
        "import json, sys\nfrom brimful.cli.main import main\n"
        "print([main(line) for line in json.load(sys.stdin)])\n"
        "print(sorted({'torch', 'numba', 'scipy'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=300,
    )
    codes, heavy = found.stdout.splitlines()
    assert set(json.loads(codes)) == {1, 2}
    assert heavy == "[]"
    said = found.stderr.splitlines()
    assert len(said) == len(MISTAKES)
    for (_, _, message), line in zip(MISTAKES, said, strict=True):
        assert message in line.replace(f"{place}/", "")


def flags(options: dict[str, Any]) -> list[str]:
    """A command line; what is positional first."""
    line: list[str] = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        line += values if name in ("run", "encoders") else [f"--{name}", *values]
    return line
