"""The watchdog: what hangs is found, gone around and reported; nothing else is ever to blame."""

import faulthandler
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.engines import watchdog as module
from brimful.corpus.engines.engine import Engine
from brimful.corpus.engines.watchdog import Watchdog, hostile_documents
from builders.engine_tasks import ENVIRONMENT
from builders.watched_tasks import lines, watch, watch_path

RUN = """
import sys
from builders.watched_tasks import *
print(watch((sys.argv[1], 6, float(sys.argv[2]))))
"""


def attempt(out: Path, seconds: float = 0.3) -> int:
    """Run `watch` once, in a process of its own; returns the exit code."""
    command = [sys.executable, "-c", RUN, str(out), str(seconds)]
    return subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL).returncode


def test_what_hangs_is_skipped_and_disturbs_nobody_else(tmp_path: Path) -> None:
    tasks = [(str(tmp_path / name), 6, 0.5) for name in ("a", "b")]
    (tmp_path / "b.hang.2").touch()
    (tmp_path / "b.hang.4").touch()
    with Engine(workers=2) as engine:
        found = engine.run(
            watch, tasks, "watch", count_causes=lambda task: len(hostile_documents(watch_path(task)))
        )
    assert found == [[], [(7, 2), (7, 4)]]
    assert [(tmp_path / name).read_text() for name in "ab"] == [lines(), lines(2, 4)]
    assert [path.name for path in tmp_path.glob(".watch*")] == [".watch-b.json"]


def test_a_kill_makes_nothing_hostile(tmp_path: Path) -> None:
    out = tmp_path / "a"
    (tmp_path / "a.kill.3").touch()
    assert attempt(out) == -signal.SIGKILL
    assert (tmp_path / ".watch-a").exists()
    assert hostile_documents(tmp_path / ".watch-a") == []
    assert attempt(out) == 0
    assert out.read_text() == lines()
    assert list(tmp_path.glob(".watch*")) == []


def test_waiting_and_slow_reading_between_documents_cost_no_time(tmp_path: Path) -> None:
    (tmp_path / "a.wait.1").touch()
    (tmp_path / "a.gap.5").touch()
    assert attempt(tmp_path / "a") == 0
    assert (tmp_path / "a").read_text() == lines()
    assert hostile_documents(tmp_path / ".watch-a") == []


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "watch"
    for record in (1, 2, 1):
        fire(path, record)
    assert hostile_documents(path) == [[0, 1], [0, 2]]
    with Watchdog(path, 1.0) as watchdog:
        assert watchdog.hostile == [[0, 1], [0, 2]]
    monkeypatch.setattr(module, "MAX_HOSTILE_DOCUMENTS", 1)
    with pytest.raises(BrimfulError, match=r"more than 1 documents .* see .*watch\.json"):
        Watchdog(path, 1.0).__enter__()


def fire(path: Path, record: int) -> None:
    """What a process leaves that the timer ended in this document."""
    watchdog = Watchdog(path, 1.0)
    watchdog.__enter__()
    watchdog.hostile.clear()
    watchdog.begin(0, record)
    faulthandler.dump_traceback(watchdog._file)
    content = path.read_bytes()
    watchdog.__exit__()
    path.write_bytes(content)


def test_nothing_is_left(tmp_path: Path) -> None:
    with Watchdog(tmp_path / "below" / "watch", 100.0) as watchdog:
        watchdog.begin(2**40, 2**50)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert list((tmp_path / "below").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(BrimfulError, match="cannot write"), Watchdog(tmp_path / "file" / "x", 1.0):
        pass
