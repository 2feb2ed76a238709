"""The watchdog: what hangs is found, gone around and reported; nothing else is ever to blame."""

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.engines import watchdog as module
from brimful.corpus.engines.engine import Engine, EngineConfig
from brimful.corpus.engines.watchdog import Watchdog, explained
from builders.watched_tasks import lines, watch, watch_path

RUN = """
import sys
from builders.watched_tasks import *
print(watch((sys.argv[1], 6, float(sys.argv[2]))))
"""


def attempt(out: Path, seconds: float = 0.3) -> int:
    """Run `watch` once, in a process of its own; returns the exit code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", RUN, str(out), str(seconds)], env=environment, stdout=subprocess.DEVNULL
    ).returncode


def test_what_hangs_is_skipped_and_disturbs_nobody_else(tmp_path: Path) -> None:
    tasks = [(str(tmp_path / name), 6, 1.0) for name in ("a", "b", "c")]
    (tmp_path / "b.hang.2").touch()
    (tmp_path / "b.hang.4").touch()
    with Engine(EngineConfig(workers=2)) as engine:
        found = engine.run(watch, tasks, "watch", explained=lambda task: explained(watch_path(task)))
    assert found == [[], [(7, 2), (7, 4)], []]
    assert [(tmp_path / name).read_text() for name in "abc"] == [lines(), lines(2, 4), lines()]
    assert [path.name for path in tmp_path.glob(".watch*")] == [".watch-b.json"]


def test_attempt_after_attempt_goes_further(tmp_path: Path) -> None:
    out = tmp_path / "a"
    for record in (0, 5):
        (tmp_path / f"a.hang.{record}").touch()
    assert attempt(out) == -signal.SIGPROF
    assert attempt(out) == -signal.SIGPROF
    assert explained(tmp_path / ".watch-a") == 2
    assert attempt(out) == 0
    assert out.read_text() == lines(0, 5)
    assert explained(tmp_path / ".watch-a") == 2
    # Another limit is another question: what was found does not count.
    (tmp_path / "a.hang.0").unlink()
    assert attempt(out, 0.6) == -signal.SIGPROF
    assert attempt(out, 0.6) == 0
    assert out.read_text() == lines(5)


def test_a_kill_makes_nothing_hostile(tmp_path: Path) -> None:
    out = tmp_path / "a"
    (tmp_path / "a.kill.3").touch()
    assert attempt(out) == -signal.SIGKILL
    assert (tmp_path / ".watch-a").exists()
    assert explained(tmp_path / ".watch-a") == 0
    assert attempt(out) == 0
    assert out.read_text() == lines()
    assert list(tmp_path.glob(".watch*")) == []


def test_waiting_costs_no_time(tmp_path: Path) -> None:
    (tmp_path / "a.wait.1").touch()
    assert attempt(tmp_path / "a") == 0
    assert (tmp_path / "a").read_text() == lines()


def test_slow_reading_between_documents_is_no_fault_of_theirs(tmp_path: Path) -> None:
    out = tmp_path / "a"
    for record in (1, 5):
        (tmp_path / f"a.gap.{record}").touch()
    assert attempt(out) == 0
    assert out.read_text() == lines()
    assert explained(tmp_path / ".watch-a") == 0


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "watch"
    for record in (1, 2, 1):
        fire(path, "key", record)
    assert explained(path) == 2
    with Watchdog(path, 1.0, "key") as watchdog:
        assert watchdog.hostile == {(0, 1), (0, 2)}
    monkeypatch.setattr(module, "MAX_HOSTILE_DOCUMENTS", 1)
    with (
        pytest.raises(BrimfulError, match=r"more than 1 documents .* see .*watch\.json"),
        Watchdog(path, 1.0, "key"),
    ):
        pass


def fire(path: Path, key: str, record: int) -> None:
    """What a process leaves that the timer ended in this document."""
    watchdog = Watchdog(path, 1.0, key)
    watchdog.__enter__()
    watchdog.hostile.clear()
    watchdog.begin(0, record)
    faulthandler.dump_traceback(watchdog._file)
    content = path.read_bytes()
    watchdog.__exit__(None, None, None)
    path.write_bytes(content)


def test_another_key_forgets(tmp_path: Path) -> None:
    path = tmp_path / "watch"
    fire(path, "one", 3)
    with Watchdog(path, 1.0, "two") as watchdog:
        assert watchdog.hostile == set()
    with Watchdog(path, 1.0, "one") as watchdog:
        assert watchdog.hostile == {(0, 3)}
    fire(path, "two", 4)
    with Watchdog(path, 1.0, "two") as watchdog:
        assert watchdog.hostile == {(0, 4)}
    assert json.loads((tmp_path / "watch.json").read_text())["hostile"] == [[0, 4]]


def test_one_at_a_time_and_nothing_left(tmp_path: Path) -> None:
    with Watchdog(tmp_path / "below" / "watch", 100.0, "key") as watchdog:
        watchdog.begin(2**40, 2**50)
        with pytest.raises(RuntimeError, match="another Watchdog"), Watchdog(tmp_path / "two", 1.0, "key"):
            pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert list((tmp_path / "below").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(BrimfulError, match="cannot write"), Watchdog(tmp_path / "file" / "x", 1.0, "key"):
        pass
