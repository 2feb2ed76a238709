"""The verbs in Python: typed keywords, data in memory wherever a file goes, results with attributes."""

import json
import os
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

import brimful
from builders.stub import RESULTS, STUB, make_stub

ROOT = STUB.parents[1]
ROWS = [{"text": f"w{number} w{number % 7}", "label": "ab"[number % 2]} for number in range(20)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label")}
RIGHT = """import brimful
from brimful.train.config import LoopConfig
run = brimful.finetune(encoder="e", train=[{"text": "a"}], test={"text": ["a"]}, trainer={"log_every": 2}, seed=[1, 2])
brimful.finetune(encoder="e", train="t.csv", out="o", trainer=LoopConfig())
print(run.test.n, run["test"], run.seconds + 1.0, brimful.Encoder.load("e").embed(["a"]))
"""  # noqa: E501
MAKERS = "builtins.dict pyarrow.table pandas.DataFrame polars.DataFrame datasets.Dataset.from_dict"
WRONG = ['trian="t"', "train=3", 'train="t", pooling="maen"', 'train="t", trainer={"kep": 2}']


def test_the_types_are_those_of_the_configurations():
    assert STUB.read_text(encoding="utf-8") == make_stub(), "python tests/builders/stub.py writes it anew"


@pytest.mark.slow
def test_mypy_accepts_a_right_script_and_refuses_each_wrong_keyword(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(
        "import brimful\n" + "".join(map("brimful.finetune({})\n".format, WRONG))
    )
    line = [sys.executable, "-m", "mypy", "--follow-imports=silent", "right.py", "wrong.py"]
    path = {**os.environ, "MYPYPATH": str(ROOT)}
    said = subprocess.run(line, cwd=tmp_path, env=path, capture_output=True, text=True).stdout
    assert re.findall(r"^(\S+):(\d+): error", said, re.MULTILINE) == [("wrong.py", n) for n in "2345"], said


@pytest.mark.parametrize("maker", MAKERS.split())
def test_data_in_memory_is_a_file(maker):
    name, _, attribute = maker.partition(".")
    library = pytest.importorskip(name, reason=f"{name} is not installed")
    found = brimful.check(files=[attrgetter(attribute)(library)(COLUMNS), iter(ROWS[:5])])
    assert next(iter(found.files.values())) == {"rows": 20, "labels": {"a": 10, "b": 10}}
    assert "leakage" in [finding.kind for finding in found.findings]
    assert not any(map(os.path.exists, found.files))
    assert re.match("<p><b>Check of tables</b>: .*<th>Finding</th>", found._repr_html_(), re.DOTALL)
    with pytest.raises(AttributeError, match="has no 'finding', only findings, files, overview"):
        _ = found.finding


WRONG_DATA = {
    "it is one row": {"text": "one", "label": "a"},
    "expected length": {"text": ["a"], "label": []},
    "b'a' is not a text": [{"text": b"a", "label": "a"}],
    r"files-\w+\.jsonl has no column 'label' \(line 1\)": [{"text": "a"}],
    "key files: expected array, got int": 3,
}


@pytest.mark.parametrize(("said", "data"), WRONG_DATA.items())
def test_wrong_data_and_keywords_are_one_line(said, data, tmp_path):
    with pytest.raises(brimful.BrimfulError, match=said):
        brimful.check(files=data)
    with pytest.raises(brimful.BrimfulError, match="unknown key trian: did you mean 'train'"):
        brimful.finetune(trian=ROWS, train=ROWS, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_walkthrough_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ {4}(.*)$", page.split("\n## ")[1], re.MULTILINE)
    texts = [f"{row['text']} w{n % 11} w{n % 5}." for n in range(40) for row in ROWS]
    values = {"texts": texts, "train": ROWS * 6, "test": ROWS}
    monkeypatch.chdir(tmp_path)
    exec("\n".join(lines).replace("1000", "3"), values)
    names, verbs = "corpus base found run student done", "prepare pretrain check finetune distil predict"
    for name, verb in zip(names.split(), verbs.split(), strict=True):
        for key, kind in RESULTS[verb].items():
            assert type(getattr(values[name], key)).__name__ == kind.partition("[")[0]
    written = json.loads(Path("labels.jsonl").read_text("utf-8").splitlines()[0])
    assert values["model"].predict(texts[:1])[0].keys() == written.keys()
    assert sorted(path.name[:4] for path in Path("runs/task/in-memory").iterdir()) == ["test", "trai"]
