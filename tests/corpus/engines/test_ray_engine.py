"""Tasks on a Ray cluster, which these tests start: results, deaths and errors are as in the local pool."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.engines.engine import Engine
from brimful.corpus.engines.watchdog import hostile_documents
from builders.engine_tasks import (
    ENVIRONMENT,
    die_always,
    die_once,
    fail,
    gone,
    identity,
    local,
    settings,
    square,
    tasks,
    wait_for,
    write_file,
)
from builders.ray_cluster import Node, cluster
from builders.watched_tasks import lines, watch, watch_path

pytest.importorskip("ray", reason="needs the extra `ray`")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of one node with two CPUs, for this file."""
    with cluster(2) as head:
        yield head.address


@pytest.fixture(scope="module")
def engine(address: str) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", address)
        with Engine("ray") as engine:
            yield engine


def test_the_output_is_that_of_the_local_pool(engine: Engine, tmp_path: Path) -> None:
    def output(engine: Engine, folder: Path) -> tuple[list[int], dict[str, bytes]]:
        folder.mkdir()
        sizes = engine.run(write_file, tasks(folder, 20), "write")
        return sizes, {path.name: path.read_bytes() for path in folder.iterdir()}

    with local() as pool:
        expected = output(pool, tmp_path / "local")
    assert len(expected[1]) == 20
    assert output(engine, tmp_path / "ray") == expected


def test_tasks_run_beside_the_caller(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "added"))
    (folder, places), *_ = engine.run(settings, tasks(tmp_path, 1), "test")
    assert folder == str(tmp_path)
    assert set(sys.path) <= set(places)
    assert os.getpid() not in engine.run(identity, tasks(tmp_path), "who")


@pytest.mark.slow
def test_a_worker_that_dies_is_retried_then_reported(engine: Engine, tmp_path: Path) -> None:
    assert engine.run(die_once, tasks(tmp_path), "test") == [0, 1, 4, 9]
    (tmp_path / "again").mkdir()
    with pytest.raises(BrimfulError, match=r"of Ray was lost .* on part 2, and so did one before it"):
        engine.run(die_always, tasks(tmp_path / "again"), "test", lambda task: f"part {task[0]}")
    assert len(list((tmp_path / "again").glob("2-*"))) == 2


DEATH = """
import sys
from builders.engine_tasks import *
with Engine("ray") as engine:
    print(engine.run(die_once, tasks(Path(sys.argv[1])), "test"))
print("left")
"""


@pytest.mark.slow
def test_what_ray_says_of_a_death_is_not_on_stdout(address: str, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", DEATH, str(tmp_path)],
        env=ENVIRONMENT | {"RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.stdout == "left\n", process.stderr
    assert "[0, 1, 4, 9]" in process.stderr


@pytest.mark.slow
def test_what_a_task_raises_is_raised_and_the_others_end(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=r"^the line for the user$"):
        engine.run(fail, [(2, str(tmp_path)), *tasks(tmp_path, 2)], "test")
    started = [int(path.name.removeprefix("started-")) for path in tmp_path.glob("started-*")]
    wait_for(lambda: all(gone(process) for process in started))
    assert engine.run(square, tasks(tmp_path), "still of use") == [0, 1, 4, 9]


@pytest.mark.slow
def test_what_hangs_is_skipped(engine: Engine, tmp_path: Path) -> None:
    work = [(str(tmp_path / name), 6, 0.5) for name in "ab"]
    (tmp_path / "b.hang.2").touch()
    (tmp_path / "b.hang.4").touch()
    found = engine.run(watch, work, "watch", explained=lambda task: len(hostile_documents(watch_path(task))))
    assert found == [[], [(7, 2), (7, 4)]]
    assert [(tmp_path / name).read_text() for name in "ab"] == [lines(), lines(2, 4)]


SLEEPER = """
import sys
from builders.engine_tasks import *
try:
    with Engine("ray", workers=1) as engine:
        engine.run(mark_and_sleep, tasks(Path(sys.argv[1])), "sleep")
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_tasks_end_with_the_caller(address: str, tmp_path: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, str(tmp_path)],
        env=ENVIRONMENT | {"RAY_ADDRESS": address},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: any(tmp_path.iterdir()))
    (mark,) = tmp_path.iterdir()
    os.killpg(process.pid, how)
    _, said = process.communicate(timeout=60)
    if how == signal.SIGINT:
        assert process.returncode == 130
        ours = [line for line in said.splitlines() if "raylet" not in line]
        assert [line for line in ours if not line.startswith("sleep: 0 of 4")] == ["interrupted"]
    wait_for(lambda: gone(int(mark.name)))


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere"])
def test_no_cluster_there(address: str) -> None:
    code = (
        "from builders.engine_tasks import *\n"
        "try: Engine('ray').run(square, [(1, '')], 'test')\n"
        "except BrimfulError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT | {"RAY_ADDRESS": address},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    ).stdout
    assert said.startswith(f"cannot join a Ray cluster, address {address} (")
    assert said.count("\n") == 1


def prepare(inputs: Path, out: Path, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "brimful", "prepare", str(inputs), "--out", str(out)]
    return [*command, "--tokenizer", "train:600", "--read.split", "line", "--shard-tokens", "2000", *flags]


def prepared(out: Path) -> dict[str, bytes]:
    files = [*(out / "shards").iterdir(), out / "tokenizer.json", out / "MANIFEST.json"]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.slow
def test_prepare_on_a_cluster_makes_the_same_bytes(address: str, raw_texts: Path, tmp_path: Path) -> None:
    for engine in ("ray", "local"):
        line = prepare(raw_texts, tmp_path / engine, "--engine", engine)
        subprocess.run(line, env=ENVIRONMENT | {"RAY_ADDRESS": address}, check=True, timeout=300)
    on_ray = prepared(tmp_path / "ray")
    assert len(on_ray) > 20
    assert on_ray == prepared(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["text", "shards"])
def test_a_node_that_is_lost_changes_no_byte(raw_texts: Path, tmp_path: Path, stage: str) -> None:
    """The second node of a cluster loses power while it runs a task of a stage."""
    inputs, lines = tmp_path / "inputs", raw_texts.read_text(encoding="utf-8").splitlines(keepends=True)
    inputs.mkdir()
    for number in range(60):
        (inputs / f"{number}.txt").write_text("".join(lines[number::60]) * 20, encoding="utf-8")
    subprocess.run(prepare(inputs, tmp_path / "local"), env=ENVIRONMENT, check=True, timeout=300)
    out = tmp_path / "ray"
    with cluster(1) as head:
        second = Node(2, f"--address={head.address}")
        line, place = prepare(inputs, out, "--engine", "ray"), ENVIRONMENT | {"RAY_ADDRESS": head.address}
        with subprocess.Popen(line, env=place, stderr=subprocess.PIPE, text=True) as process:
            wait_for(lambda: any((out / stage).glob("*")) and bool(second.busy()))
            second.kill()
            _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "a machine was lost while it worked on" in said
    assert prepared(out) == prepared(tmp_path / "local")
