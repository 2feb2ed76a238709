"""Verbs as processes, and made-up text whose entropy is known."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brimful.runs.checkpoint import read_states
from builders.training import lines

ROOT = Path(__file__).parents[2]
WORDS = 48


def made_up_words() -> list[str]:
    """Half English-looking words, half Chinese characters, in the order in which texts like to use them."""
    random_ = random.Random(7)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    english = sorted({"".join(random_.choices(syllables, k=3)) for _ in range(WORDS)})[: WORDS // 2]
    chinese = [chr(0x6000 + 7 * index) for index in range(WORDS // 2)]
    return english + chinese


def chained_documents(count: int, seed: int) -> list[str]:
    """Documents in which each word is followed by its successor, nine times out of ten.

    A model that knows only how often words occur can't get below their entropy; one that looks at the
    neighbours knows almost every word.
    """
    draw, words = random.Random(seed), made_up_words()
    documents = []
    for _ in range(count):
        at = draw.randrange(WORDS)
        sentences = []
        for _ in range(draw.randint(1, 4)):
            chosen = []
            for _ in range(draw.randint(4, 24)):
                chosen.append(words[at])
                at = (at + 1) % WORDS if draw.random() < 0.9 else draw.randrange(WORDS)
            sentences.append(" ".join(chosen) + draw.choice((".", "。")))
        documents.append(" ".join(sentences))
    return documents


def labelled_rows(count: int, seed: int) -> list[dict[str, str]]:
    """Texts whose label says which half of the words they are made of."""
    draw, words = random.Random(seed), made_up_words()
    rows = []
    for _ in range(count):
        label = draw.choice(("low", "high"))
        half = words[: WORDS // 2] if label == "low" else words[WORDS // 2 :]
        rows.append({"text": " ".join(draw.choices(half, k=draw.randint(3, 10))), "label": label})
    return rows


def write_table(path: Path, rows: list[dict[str, str]]) -> str:
    """Write rows as TSV or JSONL, by the path's suffix."""
    if path.suffix == ".jsonl":
        written = [json.dumps(row, ensure_ascii=False) for row in rows]
    else:
        written = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    path.write_text("\n".join(written) + "\n", encoding="utf-8")
    return str(path)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def command(verb: str, *arguments: Any, ranks: int = 1) -> list[str]:
    """A command line that runs a verb in a process of its own, or in `ranks` processes."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    launcher = torchrun if ranks > 1 else ()
    return [sys.executable, *launcher, "-m", "brimful", verb, *map(str, arguments)]


def start(line: list[str]) -> subprocess.Popen:
    return subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(verb: str, *arguments: Any, ranks: int = 1) -> dict[str, Any]:
    """Run a verb in real processes; what it prints as JSON."""
    with start(command(verb, *arguments, "--json", ranks=ranks)) as process:
        out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()
    (line,) = out.decode().splitlines()
    return json.loads(line)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    error: str

    @property
    def value(self) -> dict[str, Any]:
        """The JSON object on stdout of a run that succeeded."""
        assert self.code == 0, self.error
        return json.loads(self.out)

    @property
    def message(self) -> str:
        """The one line on stderr of a run that failed with exit code 1."""
        assert self.code == 1, self.error
        assert not self.out
        (line,) = [line for line in self.error.splitlines() if line.startswith("brimful: ")]
        assert "Traceback" not in self.error
        return line


Call = Callable[..., Answer]


SMALL = (
    *("--model", "tiny", "--packing.capacity", 128, "--packing.max-length", 64, "--precision", "fp32"),
    *("--trainer.steps", 20, "--trainer.log-every", 1, "--trainer.checkpoint-every", 5),
)
"""Options of a pretraining run of a few seconds."""

WEIGHTS = Path("encoder", "model.safetensors")


def wait_for(process: subprocess.Popen, path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ranks_of(process: subprocess.Popen) -> list[int]:
    """The processes that a process has started, as torchrun its ranks."""
    return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


def kill_when(line: list[str], now: Path | Callable[[], bool], later: float = 0.0) -> bool:
    """Run a command line and kill it, and its ranks, `later` seconds after a path exists or `now` says so.

    Returns:
        whether it was still running.
    """
    is_time = now.exists if isinstance(now, Path) else now
    with start(line) as process:
        while process.poll() is None and not is_time():
            time.sleep(0.002)
        time.sleep(later)
        for each in [process.pid, *ranks_of(process)] if process.poll() is None else []:
            os.kill(each, signal.SIGKILL)
        _, error = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), error.decode()
    return process.returncode != 0


def check_same(run: Path, expected: Path) -> None:
    """Two finished runs of `pretrain` have the same weights, losses and checkpoints."""
    assert sha256(run / WEIGHTS) == sha256(expected / WEIGHTS)
    assert lines(run) == lines(expected)
    ours, theirs = (read_states(folder / "checkpoints") for folder in (run, expected))
    assert ours.keys() == theirs.keys()
    assert ours[max(ours)]["best"] == theirs[max(theirs)]["best"]
    assert not list(run.rglob(".tmp-*"))
