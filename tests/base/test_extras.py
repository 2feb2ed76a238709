"""What needs a package beyond the core says so in one line, which names an extra of pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from brimful.base.environment import EXTRAS, require_packages
from brimful.base.errors import BrimfulError
from brimful.cli.main import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"scikit-learn": "sklearn", "prometheus-client": "prometheus_client"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~ ]", requirement)[0] for requirement in requirements}


def test_each_extra_brings_its_packages_and_the_core_none_of_them() -> None:
    extras = PROJECT["optional-dependencies"]
    brought = {module: extra for extra, value in extras.items() for module in names(value)}
    for module, extra in EXTRAS.items():
        assert module in {MODULES.get(name, name) for name in names(extras[extra])}, (module, brought)
    assert not {MODULES.get(name, name) for name in names(PROJECT["dependencies"])} & EXTRAS.keys()


def test_every_extra_that_is_named_exists() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.rglob("brimful/**/*.py"),
    ]
    named = {
        extra
        for page in pages
        for found in re.findall(r"brimful\[([a-z,-]+)\]", page.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert "onnx" in named
    assert named <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize("module", EXTRAS)
def test_a_package_that_is_not_there_is_one_line(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BrimfulError, match=rf"^this needs \S+: pip install 'brimful\[{EXTRAS[module]}\]'$"):
        require_packages("this", module)
    with pytest.raises(BrimfulError, match=r"pip install 'brimful\[demo\]'$"):
        require_packages("the demo", module, extra="demo")


def test_a_verb_that_needs_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 1
    said = capsys.readouterr().err
    assert said == "brimful: report needs matplotlib: pip install 'brimful[report]'\n"
