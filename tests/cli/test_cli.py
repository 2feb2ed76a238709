"""The command line: exit codes, what goes to stdout and what to stderr, and what a typing error is told."""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from brimful.base.errors import BrimfulError, UsageError
from brimful.cli import main as cli
from brimful.cli.main import VERBS, entry, main
from brimful.train.trainer import Trainer


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def histogram(tmp_path):
    path = tmp_path / "histogram.json"
    path.write_text('{"counts": [0, 0, 5, 7, 0, 3]}')
    return path


def error_line(text: str) -> str:
    """The only line of stderr, without its `brimful: `."""
    assert text.startswith("brimful: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    return text.removeprefix("brimful: ").strip()


def test_help_imports_nothing_heavy():
    code = """
import sys
from brimful.cli.main import main
assert main(["--help"]) == 0
heavy = {"torch", "numpy", "rich", "yaml", "msgspec", "scipy", "numba", "tokenizers"}
print("loaded:", *sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("loaded:\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_verbs(arguments, capsys):
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert not err
    for verb, summary in VERBS.items():
        assert f"\n  {verb} " in out
        assert summary in out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"brimful {importlib.metadata.version('brimful')}\n"


@pytest.mark.parametrize(
    ("verb", "hint"), [("pretrian", "did you mean 'pretrain'?"), ("qqqqqq", "known: "), ("", "known: ")]
)
def test_an_unknown_verb(verb, hint, capsys):
    assert main([verb]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert hint in error_line(err)


def test_an_error_has_a_traceback_on_request(tmp_path, capsys):
    assert main(["pack", "--data", str(tmp_path / "absent"), "--debug"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" in err
    assert str(tmp_path / "absent") in error_line(err.splitlines(keepends=True)[-1])


def test_a_path_that_is_too_long_is_shortened(histogram, capsys):
    assert main(["pack", "--histogram", str(histogram), "--out", "字" * 2000]) == 1
    line = error_line(capsys.readouterr().err.splitlines(keepends=True)[-1])
    assert "cannot write 字字" in line
    assert "File name too long" in line
    assert len(line) < 400


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OSError(36, "File name too long", "x" * 3000), 1, "xxx ... xxx"),
        (BrimfulError("two\nlines"), 1, "two lines"),
        (UsageError("what?"), 2, "what?"),
        (OSError(28, "No space left on device", "/x/y"), 1, "/x/y: No space left on device"),
        (MemoryError(), 1, "out of memory"),
    ],
)
def test_exit_codes(error, code, line, histogram, monkeypatch, capsys):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert main(["pack", "--histogram", str(histogram)]) == code
    out, err = capsys.readouterr()
    assert not out
    assert line in error_line(err)


def test_ctrl_c_in_a_compiled_loop(histogram, monkeypatch, capsys):
    """numba reports it as an error of the interpreter."""

    def interrupted(*_: Any) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    def broken(*_: Any) -> None:
        raise SystemError("something else")

    monkeypatch.setattr(cli, "_run", interrupted)
    assert main(["pack", "--histogram", str(histogram)]) == 130
    assert capsys.readouterr().err == "brimful: interrupted\n"
    monkeypatch.setattr(cli, "_run", broken)
    with pytest.raises(SystemError, match="something else"):
        main(["pack", "--histogram", str(histogram)])


def test_json_is_one_value_alone(corpus_dir, raw_texts, tmp_path, histogram, capfd):
    plan = tmp_path / "plan.json"
    for arguments, key, shown in (
        (["prepare", str(raw_texts), "--out", str(tmp_path / "data"), "--dry-run"], "files", "1 file"),
        (["prepare", "--config", str(corpus_dir / "config.yaml"), "--dry-run"], "files", "1 file"),
        (["pack", "--histogram", str(histogram), "--out", str(plan)], "plans", "Plans"),
    ):
        assert main([*arguments, "--json"]) == 0
        out = capfd.readouterr().out
        assert out.count("\n") == 1
        assert key in json.loads(out)
        assert main(arguments) == 0
        assert shown in capfd.readouterr().out
    assert json.loads(plan.read_text())["capacity"] == 512
    assert not (tmp_path / "data").exists()


def brimful(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "brimful", *map(str, arguments)]


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_a_reader_that_goes_away(histogram, unbuffered):
    """`brimful pack ... | true`: no traceback."""
    with subprocess.Popen(
        brimful("pack", "--histogram", histogram),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=120) == 141
    # A slow machine says in between how far it is.
    assert re.fullmatch(r"(planning: .*\n)*planning: 1 of 1 in .* s\n", err)


@pytest.mark.cases(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_stops_a_run(corpus_dir, tmp_path, monkeypatch, capfd, number):
    """In the middle of training: the shell's exit code, and a run that goes on from there."""
    run, log = tmp_path / "run", Trainer._log

    def signalled(trainer):
        monkeypatch.setattr(Trainer, "_log", log)  # a second SIGINT stops at once
        os.kill(os.getpid(), number)
        log(trainer)

    monkeypatch.setattr(Trainer, "_log", signalled)
    options = ["--model", "tiny", "--packing.capacity", "256", "--trainer.log-every", "1"]
    assert main(["pretrain", "--data", str(corpus_dir), "--out", str(run), *options]) == 128 + number
    out, err = capfd.readouterr()
    assert not out
    (saved,) = run.glob("checkpoints/step-*")
    step = saved.name.removeprefix("step-")
    way_on = f"continue with brimful pretrain --resume {run}"
    assert f"brimful: stopped by {number.name} at step {step}; {way_on}" in err
    assert not (run / "summary.json").exists()
    assert main(["pretrain", "--resume", str(run), "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "20000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_openmp_threads_wait_briefly_unless_told_otherwise(monkeypatch, given, expected):
    environment = dict(given)
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(sys, "argv", ["brimful", "--version"])
    with pytest.raises(SystemExit):
        entry()
    assert environment.get("GOMP_SPINCOUNT") == expected
