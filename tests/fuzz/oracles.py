"""What is a fault: anything but an answer that the unchanged input gives too, a warning, or one line."""

import hashlib
import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from fuzz.mutations import is_sealed
from fuzz.server import CRASHED, Run
from fuzz.targets import Target

MEMORY = 1536 << 20
"""Resident bytes over those of the unchanged input."""
# The interpreter's and the libraries' own words, which say nothing to the user.
FOREIGN = re.compile(
    r"'\w+' object (is|has|does|can)|object is not|Expecting |Extra data|invalid literal|could not convert"
    r"|codec can't|must be str|unhashable|list indices|index out of range|out of bounds|NoneType|<class '"
    r"|argument of type|not supported between|positional argument|unexpected keyword|\[Errno|Unterminated"
    r"|panicked|unwrap\(\)|dtype\('|cannot unpack|too many values|not enough values|KeyError|has no attribute"
    r"|can't multiply|cannot reshape|could not broadcast|size mismatch|Error\("
)
STRAY = re.compile(r"\.py:\d+:|Warning:|Traceback|panicked|Exception ignored")
CLOCK = re.compile(r"second|time|memory|mb$|speed|verdict|utilization|faster|bytes|out$|output$|record$")
ATOMIC = ("predict", "augment", "export", "report")
"""Verbs that leave nothing where they refuse."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault, and what makes two cases of it the same."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}"


@dataclass(frozen=True)
class Answer:
    """What a target gives on unchanged files."""

    content: Any
    warnings: frozenset[str]
    memory: int
    nan: bool


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if not CLOCK.search(key)}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _content(target: Target, run: Run, folder: Path) -> Any:
    if not target.answer:
        try:
            return _timeless(json.loads(run.out))
        except ValueError:
            return run.out
    files = [path for path in folder.glob(target.answer) if path.is_file() and path.name != "export.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _warnings(run: Run) -> frozenset[str]:
    return frozenset(line for line in run.error.splitlines() if line.startswith("warning"))


def answer_of(target: Target, run: Run, folder: Path) -> Answer:
    """What the run gave."""
    return Answer(
        _content(target, run, folder), _warnings(run), run.memory, _has_odd_numbers(target, run, folder)
    )


def _has_odd_numbers(target: Target, run: Run, folder: Path) -> bool:
    """Whether a number of the answer, on stdout or in a file, is not finite."""
    values: list[Any] = []
    if run.out.startswith(("{", "[")):
        values += [json.loads(line) for line in run.out.split("\n") if line]
    for path in folder.glob(target.answer) if target.answer else ():
        if path.suffix == ".jsonl":
            values += [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
        elif path.suffix == ".npy":
            values.append(np.load(path).tolist())
        elif path.suffix == ".parquet":
            values.append(pq.read_table(path).to_pylist())
        elif path.suffix == ".tsv":
            values += map(float, re.findall(r"\b(?:nan|inf)\b", path.read_text("utf-8")))
    try:
        json.dumps(values, allow_nan=False, default=str)
    except ValueError:
        return True
    return False


def _frame(error: str) -> str:
    """The innermost place in the package that a traceback names."""
    newest_last = re.findall(r'File ".*?/brimful/([\w/]+\.py)", line (\d+), in (\S+)', error)
    newest_first = re.findall(r'File ".*?/brimful/([\w/]+\.py)", line (\d+) in (\S+)', error)
    frames = newest_last[-1:] or newest_first[:1]
    return "{}:{} {}".format(*frames[0]) if frames else "?"


def _same_line(line: str) -> str:
    """A message without what differs between cases."""
    suffixes = "jsonl?|yaml|txt|csv|tsv|parquet|npy|safetensors|conll"
    line = re.sub(rf"[\w./-]*\.({suffixes})\b", "FILE", line)
    return re.sub(r"'[^']*'|\"[^\"]*\"|[\d.,]*\d+|/\S+|[^\x20-\x7e]+", "_", line)[:110]


def _same_json(before: bytes, after: bytes) -> bool:
    try:
        return json.loads(before) == json.loads(after)
    except (ValueError, RecursionError):
        return False


def _of_refusal(target: Target, run: Run, folder: Path, file: Path) -> Iterator[Fault]:
    lines = [line for line in run.error.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("brimful: ")]
    if len(said) != 1 or lines[-1] != said[0]:
        yield Fault("not one line", _same_line(" / ".join(lines[-2:])))
        return
    line = said[0]
    named = [file.name]
    if not target.name.endswith("-config"):
        named += [path.name for path in folder.iterdir()]
    if not any(name in line for name in named) and not re.search(r"(^|\s)--[a-z]", line):
        yield Fault("file not named", _same_line(line))
    if found := FOREIGN.search(line):
        yield Fault("foreign words", f"{_same_line(line[: found.start()])[9:60]} ... {found[0]}")
    if "out of memory" in line:
        yield Fault("memory", f"{target.name}: {line}")
    words = target.line.split()
    for flag in ("--out", "--output"):
        if words[0] in ATOMIC and flag in words and (folder / words[words.index(flag) + 1]).exists():
            yield Fault("half-written", f"{target.name}: {words[words.index(flag) + 1]}")


def faults_of(
    target: Target, run: Run, untouched: Answer, folder: Path, file: Path, before: bytes, after: bytes | None
) -> list[Fault]:
    """The faults of a run on a mutated file.

    Args:
        untouched: what the target gives without the mutation.
        file: the mutated one.
        before, after: its bytes; None where it is no file any more.
    """
    found: list[Fault] = []
    if run.code in (None, -signal.SIGXCPU):
        return [Fault("hang", f"{target.name}: {_frame(run.error)}")]
    if run.code < 0:
        return [Fault("signal", f"{target.name}: {-run.code} {_frame(run.error)}")]
    if run.code == CRASHED:
        error = next(
            (line for line in reversed(run.error.splitlines()) if re.match(r"\w[\w.]*(:|$)", line)), "?"
        )
        return [Fault("traceback", f"{_frame(run.error)} {error.split(':')[0]}")]
    if run.code not in (0, 1, 2):
        return [Fault("exit code", f"{target.name}: {run.code}")]
    if run.code:
        found += _of_refusal(target, run, folder, file)
    found += [Fault("stray line", _same_line(line)) for line in run.error.splitlines() if STRAY.search(line)][
        :1
    ]
    if run.memory > untouched.memory + MEMORY:
        found.append(Fault("memory", f"{target.name}: {run.memory >> 20} MiB"))
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob(".tmp-*"))
    found += [Fault("left behind", f"{target.name}: {re.sub(r'-[0-9]+-', '-N-', left[0])}")] if left else []
    writes = "--resume" in target.line or "-again-" in target.name or "CACHE" in target.line
    if after is not None and not writes and (not file.is_file() or file.read_bytes() != after):
        found.append(Fault("input changed", target.name))
    if run.code == 0:
        found += _of_answer(target, run, untouched, folder, file, before, after)
    return found


def _of_answer(
    target: Target, run: Run, untouched: Answer, folder: Path, file: Path, before: bytes, after: bytes | None
) -> Iterator[Fault]:
    if not untouched.nan and _has_odd_numbers(target, run, folder):
        yield Fault("NaN", target.name)
        return
    warned = _warnings(run) - untouched.warnings
    # A record with another content and its checksum is another record.
    damaged = after is None or not (_same_json(before, after) or is_sealed(after))
    if not warned and damaged:
        what = f"{target.name}: {'/'.join(re.sub('[0-9]+', 'N', p) for p in file.relative_to(folder).parts)}"
        if target.must_refuse or (target.checked and _content(target, run, folder) != untouched.content):
            yield Fault("silent", what)
