"""The help of the verbs, one screen with an example or all options."""

import re
import shlex

import pytest

from brimful.cli.arguments import parse
from brimful.cli.help import choose_main_options
from brimful.cli.main import VERBS, load_schema, main
from brimful.cli.options import Common, list_options

MAX_SCREEN_LINES = 40


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert not err
    assert not any(character.isspace() and character not in " \n" for character in out)
    return out


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("verb", VERBS)
def test_help_is_one_screen_with_an_example(verb, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = printed(capsys, verb, "--help")
    assert printed(capsys, verb, "-h") == out
    lines = out.splitlines()
    assert len(lines) <= MAX_SCREEN_LINES
    assert max(map(len, lines)) <= columns
    assert lines[-1].endswith(f"brimful {verb} --help-all"), "the command stays on one line"
    assert len(choose_main_options(load_schema(verb), list_options(load_schema(verb)))) <= 12
    example = re.findall(r"^example: brimful (.*)$", out.replace(" \\\n", ""), re.MULTILINE)[0]
    name, *arguments = shlex.split(example)
    assert name == verb
    parse(load_schema(verb), arguments, f"brimful {verb}")


@pytest.mark.parametrize("verb", VERBS)
def test_all_options_are_shown_once(verb, capsys):
    out = printed(capsys, verb, "--help-all")
    flags = re.findall(r"^  (--[\w.-]+|[A-Z]+)(?: |$)", out, re.MULTILINE)
    assert len(set(flags)) == len(flags)
    options = [*list_options(load_schema(verb)), *list_options(Common)]
    assert [o.flag for o in options if len({o.flag, o.off_flag} & set(flags)) != 1] == []
    assert ("--dry-run" in flags) == (verb not in ("check", "doctor", "inspect"))


@pytest.mark.parametrize("verb", [*VERBS, "common"])
def test_every_option_says_what_it_is(verb):
    """In a sentence or more: most name when it is set."""
    options = list_options(Common if verb == "common" else load_schema(verb))
    assert [o.flag for o in options if not o.explanation().endswith((".", '"'))] == []


def test_types_defaults_and_explanations(capsys):
    out = " ".join(printed(capsys, "pretrain", "--help-all").split())
    assert "--trainer.steps INT Number of updates. (default: 1000)" in out
    assert "--model tiny|mini|small|base|large Preset" in out
    assert "--no-verify-data Check every byte" in out
    assert "How documents become sequences. --sequences.kind" in out
    other = " ".join(printed(capsys, "pretrain", "--help-all", "--recipe", "plain").split())
    assert "--masking.rate FLOAT Expected fraction of tokens to predict. (default: 0.15)" in other


def test_without_a_list_of_main_options_every_one_is_shown(capsys):
    out = " ".join(printed(capsys, "report", "--help").split())
    assert out.startswith("usage: brimful report RUNS ... [OPTIONS] Show runs on one HTML page")
    assert "--out STR HTML file to write. (required) --ladder First" in out
    assert "the options in full, and --config FILE.yaml, --json, --debug: brimful report --help-all" in out
