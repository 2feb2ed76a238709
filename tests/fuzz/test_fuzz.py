"""The fuzzer sees what it is to find; a few hundred cases find nothing."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.verbs import ROOT
from fuzz import oracles, server
from fuzz.targets import Target

pytestmark = pytest.mark.slow

TARGET = Target("predict", "predict --input in.jsonl --output out.jsonl", ("in.jsonl",), checked=True)


def _refuse(line: str) -> int:
    print(f"brimful: {line}", file=sys.stderr)
    return 1


def _write(name: str, text: str, code: int = 0) -> int:
    Path(name).write_text(text)
    return _refuse("in.jsonl, line 1 is wrong") if code else 0


def _say(line: str, answer: str = "{}") -> int:
    print(line, file=sys.stderr)
    return _write("out.jsonl", answer)


def _eat(line: str) -> int:
    # A fork begins without the parent's pages of libraries, several 100 MB.
    kept = bytearray(oracles.MEMORY + (1 << 30))
    kept[:: 1 << 12] = b"x" * len(kept[:: 1 << 12])
    return _write("out.jsonl", "{}")


PLANTED: dict[str, tuple[Callable[[str], int], str]] = {
    "right": (lambda line: _write("out.jsonl", "{}"), ""),
    "refused": (lambda line: _refuse("in.jsonl, line 3: no text; name the column"), ""),
    "warned": (lambda line: _say("warning: in.jsonl has 1 row without a text", "[]"), ""),
    "an exception": (lambda line: {}["text"], "traceback"),
    "no end": (lambda line: max(itertools.count()), "hang"),
    "much memory": (_eat, "memory"),
    "a signal": (lambda line: os.kill(os.getpid(), 11) or 0, "signal"),
    "another exit code": (lambda line: 3, "exit code"),
    "no file named": (lambda line: _refuse("a row is wrong"), "file not named"),
    "two lines": (lambda line: _refuse("in.jsonl") + _refuse("in.jsonl") - 1, "not one line"),
    "Python's words": (lambda line: _refuse("in.jsonl: 'float' object is not iterable"), "foreign words"),
    "a library's warning": (lambda line: _say("x.py:3: UserWarning: odd"), "stray line"),
    "not a number": (lambda line: _write("out.jsonl", '{"probability": NaN}'), "NaN"),
    "another answer": (lambda line: _write("out.jsonl", "[]"), "silent"),
    "half an answer": (lambda line: _write("out.jsonl", "{", code=1), "half-written"),
    "a temporary file": (lambda line: _write(".tmp-host-1-out", "", code=1), "left behind"),
    "a changed input": (lambda line: _write("in.jsonl", "", code=1), "input changed"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_oracles_see(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, kind = PLANTED[what]
    folder, said = tmp_path / "case", tmp_path / "said"
    folder.mkdir()
    said.mkdir()
    monkeypatch.setattr(server, "SECONDS", 1 if kind == "hang" else 60)
    monkeypatch.setattr(oracles, "MEMORY", 100 << 20)
    monkeypatch.setattr(server, "call", PLANTED["right"][0])
    untouched = oracles.answer_of(TARGET, server.run(TARGET.line, folder, said), folder)
    (folder / "out.jsonl").unlink()
    (folder / "in.jsonl").write_text("mutated")
    monkeypatch.setattr(server, "call", verb)
    run = server.run(TARGET.line, folder, said)
    faults = oracles.faults_of(TARGET, run, untouched, folder, folder / "in.jsonl", b"given", b"mutated")
    assert {fault.kind for fault in faults} == ({kind} if kind else set())


@pytest.mark.timeout(3600)
def test_a_few_hundred_cases(tmp_path: Path, seed: int) -> None:
    line = [sys.executable, "-m", "fuzz", "--cases", "600", "--seed", str(seed), "--out", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT / "tests", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [json.loads(row) for row in (tmp_path / "cases.jsonl").read_text().splitlines()]
    assert len(cases) == 600
    assert len({case["target"] for case in cases}) > 80
    assert sum(case["mutation"].endswith("value") for case in cases) > 60  # inside, and not of bytes
    assert 100 < sum(case["ended"] == "refused" for case in cases) < 500
