"""`prepare` that was killed at random moments makes the same shards as a run that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brimful.base.seals import MANIFEST
from brimful.corpus.shards import Corpus

WORDS = ["river", "stone", "quickly", "running", "the", "of", "股票", "无创dna", "检测", "上涨。", "."]
KILLS = 30
SCRIPT = """
import sys
from brimful.corpus.pipeline import inventory
from brimful import prepare
inventory.SMALLEST_PART = 20_000
other = {"language": "en", "dedup": {"documents": False}, "validation_share": 0.2} if sys.argv[4:] else {}
prepare(**{"paths": [sys.argv[1]], "out": sys.argv[2], "tokenizer": sys.argv[3], "workers": 2,
           "shard_tokens": 5000, "validation_share": 0.1, "read": {"split": "line"}, **other})
"""


def start(inputs: Path, out: Path, tokenizer: str, *flags: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", SCRIPT, str(inputs), str(out), tokenizer, *flags]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)


def wait_for_workers(group: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("worker processes outlive their parent")


def shards(out: Path) -> dict[str, bytes]:
    files = [*(out / "shards").iterdir(), out / "tokenizer.json"]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.slow
def test_kills_and_the_same_bytes(tmp_path: Path, corpus_dir: Path) -> None:
    draw = random.Random(11)
    texts = tmp_path / "in"
    texts.mkdir()
    for number in range(8):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(3, 60))) for _ in range(200)]
        (texts / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    assert Corpus.open(corpus_dir).documents  # making it has compiled the loops
    begun = time.monotonic()
    assert start(texts, tmp_path / "reference", "train:600").wait() == 0
    duration = time.monotonic() - begun
    given = str(tmp_path / "reference" / "tokenizer.json")
    expected = shards(tmp_path / "reference")
    kills = completed = 0
    out = tmp_path / "out-0"
    while kills < KILLS:
        # Every third run has other settings: runs must never take its files for their own work.
        # In odd folders the tokenizer is trained by whichever run comes first: all have the same settings.
        trained = completed % 2 == 1
        other = kills % 3 == 2 and not trained
        process = start(texts, out, "train:600" if trained else given, *["other"] * other)
        try:
            process.wait(timeout=draw.uniform(0, 1) * duration)
        except subprocess.TimeoutExpired:
            # The parent only, or all at once: workers must go by themselves, and never finish half.
            kill = os.kill if draw.random() < 0.5 else os.killpg
            kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        wait_for_workers(process.pid)
        if (out / MANIFEST).exists() and not other:  # finished: nothing is left to interrupt, so start over
            assert shards(out) == expected
            completed += 1
            out = tmp_path / f"out-{completed}"
    assert start(texts, out, "train:600" if completed % 2 else given).wait() == 0
    assert shards(out) == expected
    assert list(out.rglob(".tmp-*")) == []
    Corpus.open(out, verify=True)
