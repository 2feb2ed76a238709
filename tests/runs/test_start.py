"""A signal before a run has started: one line, and nothing is left of the run."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from brimful.cli.main import main
from brimful.runs.signals import StoppedError, catch_start_signals
from builders.verbs import SMALL

# A process that signals itself at an event of the interpreter, such as an import.
PROGRAM = """
import os, sys
number, event, name = int(sys.argv[1]), *sys.argv[2:4]
sys.argv[:] = ["brimful", *sys.argv[4:]]
def signalled(what, arguments):
    global number
    if number and what == event and name in str(arguments[0]):
        at, number = number, 0
        os.kill(os.getpid(), at)
sys.addaudithook(signalled)
from brimful.cli.main import entry
entry()
"""


def signalled(number: int, event: str, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", PROGRAM, str(int(number)), event, name, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env=dict(os.environ))


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("number", "event", "name"),
    [
        (signal.SIGINT, "import", "torch"),
        (signal.SIGTERM, "import", "yaml"),
        (signal.SIGTERM, "open", "MANIFEST.json"),
        (signal.SIGINT, "open", ".lock"),
    ],
)
def test_before_the_run(corpus_dir: Path, tmp_path: Path, number: int, event: str, name: str) -> None:
    out = tmp_path / "new" / "run"
    ended = signalled(number, event, name, "pretrain", "--data", corpus_dir, "--out", out, *SMALL)
    told = f"stopped by {signal.Signals(number).name} before the run had started; nothing was written"
    assert ended.stderr.splitlines()[-1] == f"brimful: {told}"
    assert (ended.returncode, ended.stdout) == (128 + number, "")
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"] == []


def test_after_its_start_a_run_can_be_resumed(corpus_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["pretrain", "--data", corpus_dir, "--out", out, *SMALL]
    ended = signalled(signal.SIGINT, "os.rename", "-start", *arguments)  # its model, before the first step
    assert ended.returncode == 130
    remedy = f"brimful: interrupted; continue with brimful pretrain --resume {out}"
    assert ended.stderr.splitlines()[-1] == remedy
    assert main(["pretrain", "--resume", str(out), "--json"]) == 0


@pytest.mark.parametrize(
    ("event", "name", "rest"),
    [("os.scandir", "texts", "nothing was written"), ("subprocess.Popen", "", "the same command continues")],
)
def test_what_is_prepared_continues(tmp_path: Path, event: str, name: str, rest: str) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("some words and others\n" * 30)
    out = tmp_path / "data"
    arguments = ["prepare", tmp_path / "texts", "--out", out, "--tokenizer", "train:300", "--workers", "1"]
    ended = signalled(signal.SIGINT, event, name, *arguments)
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == f"brimful: interrupted; {rest}"
    assert out.exists() == (rest == "the same command continues")


def test_a_signal_that_an_import_swallows_counts() -> None:
    def swallowed(error: type[Exception] | None) -> None:
        with catch_start_signals():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                if error:
                    raise error from None

    for error in (ImportError, None):
        with pytest.raises(StoppedError) as stopped:
            swallowed(error)
        assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_no_work_begins_after_a_signal_that_was_swallowed() -> None:
    began = []

    def run() -> None:
        with catch_start_signals() as start:
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            start.end()
            began.append("work")

    with pytest.raises(StoppedError, match="stopped by SIGINT before the run had started; nothing"):
        run()
    assert not began
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_once_a_run_has_started_signals_are_its_own() -> None:
    with catch_start_signals() as start:
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        start.end()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    with pytest.raises(ValueError, match="as ever"), catch_start_signals():
        raise ValueError("as ever")
