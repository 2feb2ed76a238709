"""The help of the verbs: one screen of main options with an example, and all options on request."""

import re
import shlex
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
import tyro

from brimful.base.config import build
from brimful.cli.arguments import parse
from brimful.cli.help import MOST, help_of, main_options
from brimful.cli.main import load_schema, main
from brimful.cli.options import options_of
from brimful.cli.verbs import VERBS

SCREEN = 40
"""Lines."""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert not err
    assert not any(character.isspace() and character not in " \n" for character in out)
    return out


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_one_screen(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    out = shown(capsys, verb, "--help")
    assert shown(capsys, verb, "-h") == out
    lines = out.splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 100
    assert f"\nexample: brimful {verb} " in out
    assert lines[-1].endswith(f"brimful {verb} --help-all")
    assert 1 <= len(main_options(load_schema(verb))) <= MOST


def test_the_screen_of_predict_names_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert "or .npy: vectors, or a task model's scores" in " ".join(
        shown(capsys, "predict", "--help").split()
    )


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_one_screen_of_80_columns(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(capsys, verb, "--help").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= SCREEN
    assert lines[-1].endswith(f"brimful {verb} --help-all"), "the command stays on one line"


@pytest.mark.parametrize("verb", VERBS)
def test_all_options_are_shown_once(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, verb, "--help-all")
    flags = re.findall(r"^  (--[\w.-]+|[A-Z]+)(?: |$)", out, re.MULTILINE)
    assert len(set(flags)) == len(flags)
    options = options_of(load_schema(verb))
    assert {options[flag].path for flag in flags if flag in options} == {o.path for o in options.values()}
    assert {"--config", "--json", "--debug"} <= set(flags)
    assert ("--dry-run" in flags) == (verb not in ("check", "doctor", "inspect"))


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_is_a_command_line(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, verb, "--help").replace(" \\\n", "")
    example = re.findall(r"^example: brimful (.*)$", out, re.MULTILINE)[0]
    name, *arguments = shlex.split(example)
    assert name == verb
    parse(load_schema(verb), arguments, f"brimful {verb}")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fills_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lengths = [len(line) for line in shown(capsys, "pretrain", "--help-all").splitlines()]
    assert width - 5 < max(lengths) <= width


def test_types_defaults_and_explanations(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(shown(capsys, "pretrain", "--help-all").split())
    assert "--trainer.steps INT Number of updates. (default: 1000)" in out
    assert "--masking.rate FLOAT" in out
    assert "--model tiny|mini|small|base|large Preset" in out
    assert "--no-verify-data Check every byte" in out
    assert "How documents become sequences --sequences.kind" in out
    other = " ".join(shown(capsys, "pretrain", "--help-all", "--recipe", "plain").split())
    assert "--masking.rate FLOAT Expected fraction of tokens to predict. (default: 0.15)" in other


@dataclass(frozen=True, kw_only=True)
class _Inner:
    """How it is cut: in two."""

    rate: float = 0.5
    """A rate. More than one sentence."""


@dataclass(frozen=True, kw_only=True)
class _Plain:
    """Do it. In two ways."""

    ways: tuple[Literal["a", "b"], ...] = ("a",)
    """The ways."""
    out: str
    """The folder."""
    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """The files."""
    inner: _Inner = field(default=_Inner())
    """In the middle."""


def test_a_configuration_without_a_list_shows_what_it_requires_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    default = build(_Plain, {}, missing=tyro.MISSING)
    assert (
        help_of(_Plain, "brimful it", default, every=False)
        == """usage: brimful it PATHS ... [OPTIONS]

Do it.

  --out STR                   The folder. (required)
  PATHS                       The files. (required)
  --ways a|b ...              The ways. (default: a)

example: brimful it --out STR PATHS
1 more option, and --config FILE.yaml, --json, --debug: brimful it --help-all
"""
    )
    assert """How it is cut
  In two. In the middle.
  --inner.rate FLOAT          A rate. More than one sentence. (default: 0.5)
""" in help_of(_Plain, "brimful it", default, every=True)
