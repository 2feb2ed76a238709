"""Messages and progress go to stderr as they are; without a command, to `logging` and `warnings`."""

import logging
import warnings

import pytest

from brimful.base import console, terminal
from brimful.base.console import print_messages, record_warnings, say, show_progress, warn
from brimful.base.errors import BrimfulWarning


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """stderr takes itself for a terminal with colours, where the bar is drawn 100 columns wide."""
    monkeypatch.setattr(console.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = terminal.Console(stderr=True, force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "console", shown)


def test_messages_go_to_stderr_as_they_are(capsys):
    text = "[bold]not markup[/bold] 'quoted' 汉字 :smile: 1,000 " + "long " * 100
    say(text)
    warn(text)
    out, err = capsys.readouterr()
    assert not out
    assert err == f"{text}\nwarning: {text}\n"


def test_control_characters_cannot_reach_a_terminal(capsys):
    """A file name or a label may hold what clears a screen or writes backwards."""
    say("one\ntwo \x1b[2J \r \u202e \udc80")
    assert capsys.readouterr().err == "one\ntwo \\x1b[2J \\r \\u202e \\udc80\n"


def test_warnings_are_yellow_where_colours_are_wanted(monkeypatch, capsys):
    watch(monkeypatch)
    warn("odd")
    say("even")
    monkeypatch.setenv("NO_COLOR", "1")
    warn("odder")
    assert capsys.readouterr().err == "\x1b[33mwarning: odd\x1b[0m\neven\nwarning: odder\n"


def test_a_command_prints_each_warning_once(capsys):
    for _ in range(2):
        with print_messages():
            for text in ("odd", "odd", "odder", "odd"):
                warn(text)
            say("even")
            say("even")
    assert capsys.readouterr().err == "warning: odd\nwarning: odder\neven\neven\n" * 2


@pytest.mark.usefixtures("library")
def test_a_program_decides_about_warnings(capsys):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            warn("odd \x1b[2J")
    assert [(str(one.message), one.category) for one in said] == [("odd \\x1b[2J", BrimfulWarning)]
    assert said[0].filename == __file__
    with pytest.raises(BrimfulWarning, match="odd"):  # as these tests make errors of warnings
        warn("odd")
    with record_warnings() as lines:
        warn("odd")
    assert lines == ["odd"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("library")
def test_a_program_decides_about_messages_and_progress(caplog, monkeypatch, capsys):
    caplog.set_level(logging.INFO, "brimful")
    say("even")
    with show_progress("train", 3) as advance:
        advance(3)
    assert [(one.name, one.levelno) for one in caplog.records] == [("brimful", logging.INFO)] * 2
    assert caplog.messages[0] == "even"
    assert caplog.messages[1].startswith("train: 3 of 3 in ")
    assert capsys.readouterr() == ("", "")
    watch(monkeypatch)
    with show_progress("train", 20) as advance:
        advance(20)
    assert "20/20" in capsys.readouterr().err


def test_lines_appear_above_a_bar(monkeypatch, capsys):
    watch(monkeypatch)
    with show_progress("train", 20) as advance:
        advance(3)
        warn("a file was passed over")
        advance(17)
    err = capsys.readouterr().err
    assert "20/20" in err.partition("a file was passed over")[2]


def test_progress_in_a_log(monkeypatch, capsys):
    """Few lines where nobody watches: one every ten seconds, and one at the end."""
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with show_progress("train", 2000) as advance:
        for _ in range(25):
            now += 1.0
            advance(80, f"[loss] {now:.0f}" if now % 4 == 0 else "")
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        "train: 800 of 2,000, 10 s, 15 s left [loss] 8",
        "train: 1,600 of 2,000, 20 s, 5 s left [loss] 20",
        "train: 2,000 of 2,000 in 25.0 s",
    ]


@pytest.mark.parametrize(("limit", "left"), [(40.0, "at most 40 s left"), (5000.0, "90 s left")])
def test_a_limit_that_ends_sooner_than_the_steps_is_the_time_left(limit, left, monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with show_progress("train", 100) as advance:
        now = 10.0
        advance(10, "loss 3", limit)
    assert capsys.readouterr().err.splitlines()[0] == f"train: 10 of 100, 10 s, {left} loss 3"
    watch(monkeypatch)
    with show_progress("train", 1000) as advance:
        advance(1, "", limit)
    assert ("at most 40 s left" in capsys.readouterr().err) == (limit == 40.0)
