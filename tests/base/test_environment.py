"""What is absent or wrong is one line: it names the variable of a launcher or the extra of pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from brimful.base.environment import EXTRAS, rank_and_size, read_number, require_packages
from brimful.base.errors import BrimfulError
from brimful.cli.main import main


@pytest.mark.parametrize("said", ["abc", "", "-1", "1.0", " 1", "１", "9" * 5000])
def test_what_is_no_number_is_refused(said, monkeypatch):
    monkeypatch.setenv("RANK", said)
    with pytest.raises(BrimfulError, match="variable RANK is "):
        read_number("RANK", 0)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"WORLD_SIZE": "2"}, "not RANK, MASTER_ADDR, MASTER_PORT"),
        ({"RANK": "1"}, "RANK=1 of WORLD_SIZE=1"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 of WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "y"}, "MASTER_PORT"),
    ],
)
def test_ranks_that_contradict_each_other(values, named, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert rank_and_size() == (0, 1)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BrimfulError, match=named):
        rank_and_size()


def test_a_verb_says_it_before_any_work(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "abc")
    assert main(["inspect", "nowhere", "--verify"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "RANK is 'abc'" in line


ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"scikit-learn": "sklearn", "prometheus-client": "prometheus_client"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~ ]", requirement)[0] for requirement in requirements}


def test_each_extra_brings_its_packages_and_the_core_none_of_them():
    extras = PROJECT["optional-dependencies"]
    for module, extra in EXTRAS.items():
        assert module in {MODULES.get(name, name) for name in names(extras[extra])}, module
    assert not {MODULES.get(name, name) for name in names(PROJECT["dependencies"])} & EXTRAS.keys()


def test_every_extra_that_is_named_exists():
    named = set()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.rglob("brimful/**/*.py")):
        for found in re.findall(r"(?:brimful|'\.)\[([a-z,-]+)\]", page.read_text(encoding="utf-8")):
            named |= {*found.split(",")}
    assert "onnx" in named
    assert named <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize("module", EXTRAS)
def test_a_package_that_is_not_there_is_one_line(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        BrimfulError, match=rf"^this needs \S+: pip install '\.\[{EXTRAS[module]}\]' in the clone$"
    ):
        require_packages("this", module)
    with pytest.raises(BrimfulError, match=r"pip install '\.\[demo\]' in the clone$"):
        require_packages("the demo", module, extra="demo")


def test_a_verb_that_needs_one_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 1
    said = capsys.readouterr().err
    assert said == "brimful: report needs matplotlib: pip install '.[report]' in the clone\n"
