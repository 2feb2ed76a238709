"""Retired options: one line on the command line and in a file; configurations that did not use them open."""

from pathlib import Path

import pytest

from brimful.cli import main
from brimful.commands.predict import PredictConfig
from brimful.config import build
from brimful.errors import BrimfulError
from brimful.retired import OPTIONS, VALUES, VERBS, instead_of

ROOT = Path(__file__).parents[1]


def test_a_retired_flag_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = ("predict", "--model", "m", "--input", "i", "--output", "o", "--submission")
    assert main(line) == 2
    said = capsys.readouterr().err
    assert said.startswith("brimful: --submission is retired: predictions are .jsonl")
    assert said.count("\n") == 1


def test_a_saved_configuration_without_its_use_still_opens() -> None:
    given = {"model": "m", "input": "i", "output": "o.jsonl"}
    assert build(PredictConfig, {**given, "submission": False}) == build(PredictConfig, given)
    with pytest.raises(BrimfulError, match=r"^submission is retired: predictions"):
        build(PredictConfig, {**given, "submission": True})


def test_an_option_is_known_with_and_without_its_group() -> None:
    for option in OPTIONS:
        for name in (option, option.replace("_", "-"), option.rpartition(".")[2], f"{option}.any"):
            assert instead_of(name) == f"{option} is retired: {OPTIONS[option].instead}"
    assert instead_of("output") is None


def test_history_names_what_is_retired() -> None:
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    assert [option for option in OPTIONS if option.replace("_", "-") not in page] == []
    assert [verb for verb in VERBS if verb not in page] == []
    assert [f"{option} {value}" for option, value in VALUES if value not in page] == []
