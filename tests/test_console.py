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
