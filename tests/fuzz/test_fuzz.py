"""The fuzzer sees what it is to find; a few hundred cases find nothing."""

import contextlib
import io
import itertools
import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

from builders.verbs import ROOT
from fuzz import mutations, oracles, server
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


def test_a_mutation_nested_deeper_than_json_can_be_is_no_record() -> None:
    deep = b"[" * 100_000
    assert not mutations.is_sealed(deep)
    assert not oracles._same_json(b"[]", deep)


TABLE = {"text": ["a", "b"], "label": [0.5, 1.5]}


@pytest.fixture
def contents() -> dict[str, bytes]:
    """A file of each format whose values are mutated."""
    buffers = {name: io.BytesIO() for name in ("npy", "parquet", "bin")}
    np.save(buffers["npy"], np.ones((2, 3), np.float32))
    pq.write_table(pa.table(TABLE), buffers["parquet"])
    torch.save({"weight": torch.ones(2)}, buffers["bin"])
    record = {"crc32": zlib.crc32(b'{"a": [1, "x"]}'), "a": [1, "x"]}
    return {
        "json": json.dumps(record).encode(),
        "jsonl": b'{"text": "a"}\n{"text": "b"}\n',
        "yaml": b"a: 1\nb: [x]\n",
        "csv": b'text,label\n"a, b",c\n',
        "tsv": b"text\tlabel\na, b\tc\n",
        "safetensors": safetensors.numpy.save({"weight": np.ones(2, np.float32)}),
        **{name: buffer.getvalue() for name, buffer in buffers.items()},
    }


@pytest.mark.parametrize("suffix", mutations.FORMATS)
def test_every_format_is_mutated_inside(suffix: str, contents: dict[str, bytes]) -> None:
    content, open_file = contents[suffix[1:]], mutations.FORMATS[suffix]
    value, write = open_file(content)
    assert open_file(write(value))[0] == value
    draw, made, kept = random.Random(1), set(), 0
    for _ in range(200):
        with contextlib.suppress(Exception):
            written = write(mutations.mutate_value(value, draw))
            made.add(written)
            kept += suffix != ".json" or mutations.is_sealed(written)
    assert len(made) > 30
    assert kept > 50


@pytest.mark.timeout(3600)
def test_a_few_hundred_cases(tmp_path: Path, seed: int) -> None:
    line = [sys.executable, "-m", "fuzz", "--cases", "600", "--seed", str(seed), "--out", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT / "tests", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [json.loads(row) for row in (tmp_path / "cases.jsonl").read_text().splitlines()]
    assert len(cases) == 600
    assert len({case["target"] for case in cases}) > 80
    assert 100 < sum(case["ended"] == "refused" for case in cases) < 500
