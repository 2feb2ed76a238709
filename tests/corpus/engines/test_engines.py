"""Engines: results in order, deaths survived or named, errors passed on, nothing left running."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.engines import local_pool
from builders.engine_tasks import (
    ENVIRONMENT,
    Task,
    die_always,
    die_once,
    fail,
    fail_oddly,
    gone,
    identity,
    leave,
    local,
    settings,
    square,
    tasks,
    unpicklable,
    wait_for,
    work_beside_a_death,
)


def test_results_come_in_order_and_the_pool_is_kept(tmp_path: Path) -> None:
    with local() as engine:
        assert engine.run(square, tasks(tmp_path, 20), "square") == [number**2 for number in range(20)]
        assert engine.run(square, [], "nothing") == []
        first, second = (set(engine.run(identity, tasks(tmp_path, 6), "who")) for _ in range(2))
    assert first == second
    assert len(first) == 2
    assert os.getpid() not in first
    assert all(gone(process) for process in first)


def test_a_worker_that_dies_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with local() as engine:
        assert engine.run(die_once, tasks(tmp_path), "test", lambda task: f"part {task[0]}") == [0, 1, 4, 9]
    said = capfd.readouterr().err
    assert "a worker process was killed by signal 9 (Killed), perhaps for lack of memory" in said
    assert "while it worked on part 2; trying again" in said


def test_a_death_disturbs_no_other_task(tmp_path: Path) -> None:
    with local() as engine:
        assert engine.run(work_beside_a_death, tasks(tmp_path, 2), "test") == [1, 2]


def test_a_death_between_tasks_is_nobodys(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with local(1) as engine:
        (worker,) = engine.run(identity, tasks(tmp_path, 1), "who")
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: gone(worker))
        time.sleep(0.2)  # its other thread may take longer
        assert engine.run(identity, tasks(tmp_path, 1), "who") != [worker]
    assert "trying again" not in capfd.readouterr().err


def test_two_deaths_are_an_error_with_a_name(tmp_path: Path) -> None:
    with local() as engine:
        killed = "killed by signal 11 .* while it worked on part 2, and so did"
        with pytest.raises(BrimfulError, match=killed):
            engine.run(die_always, tasks(tmp_path), "test", lambda task: f"part {task[0]}")
        assert len(list(tmp_path.glob("2-*"))) == 2
        with pytest.raises(BrimfulError, match="left with exit code 3"):
            engine.run(leave, tasks(tmp_path, 1), "test")
        assert engine.run(square, tasks(tmp_path), "still of use") == [0, 1, 4, 9]


def test_an_explained_death_is_no_strike(tmp_path: Path) -> None:
    def explained(task: Task) -> int:
        return min(5, len(list(tmp_path.glob(f"{task[0]}-*"))))

    with local() as engine, pytest.raises(BrimfulError, match="signal 11"):
        engine.run(die_always, tasks(tmp_path), "test", count_causes=explained)
    assert len(list(tmp_path.glob("2-*"))) == 5 + 2


def test_what_a_task_raises_is_raised_and_the_others_end(tmp_path: Path) -> None:
    with local(3) as engine:
        with pytest.raises(BrimfulError, match=r"^the line for the user$"):
            engine.run(fail, tasks(tmp_path, 10), "test")
        started = [int(path.name.removeprefix("started-")) for path in tmp_path.glob("started-*")]
        assert all(gone(process) for process in started)
        assert engine.run(square, tasks(tmp_path), "still of use") == [0, 1, 4, 9]
        with pytest.raises(RuntimeError, match=r"(?s)^OddError: 1 and 2\n.* in fail_oddly\n"):
            engine.run(fail_oddly, tasks(tmp_path), "test")
        with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
            engine.run(unpicklable, tasks(tmp_path), "test")


def test_a_worker_is_small_and_sees_what_the_caller_sees(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "added"))
    with local(1) as engine:
        assert engine.run(settings, tasks(tmp_path, 1), "test") == [(str(tmp_path), sys.path)]
    code = "import brimful.corpus.engines.local_pool as module, sys;"
    assert printed("-c", code + "print({'torch', 'numpy', 'pyarrow'} & set(sys.modules))") == "set()\n"


def printed(*arguments: str) -> str:
    """What a script prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True).stdout


UNGUARDED = """
from builders.engine_tasks import *
print("started")
with local() as engine:
    print(engine.run(square, tasks(Path(), 3), "square"))
"""


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(UNGUARDED)
    assert printed(str(path)) == "started\n[0, 1, 4]\n"


def test_workers_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_pool, "PROGRAM", "raise SystemExit(4)")
    with local() as engine, pytest.raises(BrimfulError, match=r"cannot start \(exit code 4"):
        engine.run(square, tasks(tmp_path), "test")


SLEEPER = """
import sys
from builders.engine_tasks import *
try:
    with local() as engine:
        engine.run(mark_and_sleep, tasks(Path(sys.argv[1])), "sleep")
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)
"""


def test_an_interrupt_ends_all_without_a_word_of_the_workers(tmp_path: Path) -> None:
    process, workers = start_sleeper(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line for line in said.splitlines() if not line.startswith("sleep: 0 of 4")] == ["interrupted"]
    assert all(gone(worker) for worker in workers)


def test_workers_go_when_their_parent_is_killed(tmp_path: Path) -> None:
    process, workers = start_sleeper(tmp_path)
    process.kill()
    _, said = process.communicate(timeout=60)
    wait_for(lambda: all(gone(worker) for worker in workers))
    assert said == ""


def start_sleeper(folder: Path) -> tuple["subprocess.Popen[str]", list[int]]:
    """A process whose two workers sleep in a task each, and their process ids."""
    command = [sys.executable, "-c", SLEEPER, str(folder)]
    streams = {"stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, **streams)
    wait_for(lambda: len(list(folder.iterdir())) == 2)
    workers = [int(path.name) for path in folder.iterdir()]
    assert not any(gone(worker) for worker in workers)
    return process, workers
