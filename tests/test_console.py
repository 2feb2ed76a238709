"""Messages and progress go to stderr, as they are."""

import pytest

from brimful import console
from brimful.console import progress, say, warn


def test_messages_go_to_stderr_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[bold]not markup[/bold] 'quoted' 汉字 :smile: 1,000 " + "long " * 100
    say(text)
    warn(text)
    out, err = capsys.readouterr()
    assert not out
    assert err == f"{text}\nwarning: {text}\n"


def test_progress_in_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Few lines where nobody watches: one every ten seconds, and one at the end."""
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with progress("train", 2000) as advance:
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


def test_an_error_ends_progress_without_a_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with progress("train", 10) as advance:
            advance()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "console", console.Console(stderr=True, force_terminal=True, width=100))
    with progress("train", 20) as advance:
        advance(20, "[loss] 3")
    out, err = capsys.readouterr()
    assert not out
    assert "20/20" in err
    assert "[loss] 3" in err


def test_a_narrow_terminal_shows_the_whole_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "console", console.Console(stderr=True, force_terminal=True, width=60))
    note = "loss mlm 5.475, accuracy 10.1%, rate 1.85e-05, 12,493 tokens/s, 99.8% of slots real, MFU 41.2%"
    with progress("train", 20) as advance:
        advance(20, note)
    err = capsys.readouterr().err
    assert "train" in err
    assert "20/20" in err
    assert all(word in err for word in note.split())


@pytest.mark.parametrize("terminal", [False, True])
def test_a_limit_ends_sooner_than_the_steps(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten steps in 100 seconds leave 900 for 90 steps, or the 45 to which the run is limited."""
    now = 0.0
    shown = console.Console(stderr=True, force_terminal=terminal, width=100, get_time=lambda: now)
    monkeypatch.setattr(console, "console", shown)
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    for limit, expected in ((45.0, ("45 s left", "0:00:45 left")), (5000.0, ("900 s left", "0:15:00 left"))):
        now = 0.0
        with progress("train", 100) as advance:
            for _ in range(10):
                now += 10
                advance(1, "", limit)
        assert expected[terminal] in capsys.readouterr().err
