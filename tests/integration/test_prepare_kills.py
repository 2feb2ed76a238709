"""`prepare` killed at random instants, again and again: the shards are those of a run left in peace."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from brimful.corpus.prepare import prepare
from brimful.corpus.shards import MANIFEST, Corpus

WORDS = ["river", "stone", "quickly", "running", "the", "of", "股票", "无创dna", "检测", "上涨。", "."]
KILLS = 30
SCRIPT = """
import sys
from brimful.corpus.stages import plan
from brimful.corpus.prepare import prepare
plan.SMALLEST_PART = 20_000
prepare(paths=[sys.argv[1]], out=sys.argv[2], tokenizer="train:600", workers=2, shard_tokens=5000,
        validation_share=0.1, read={"split": "line"})
"""


def start(inputs: Path, out: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", SCRIPT, str(inputs), str(out)]
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


def output(out: Path) -> dict[str, bytes]:
    files = [*(out / "shards").iterdir(), out / "tokenizer.json", out / MANIFEST]
    return {path.name: path.read_bytes() for path in files}


def test_thirty_kills_and_the_same_bytes(tmp_path: Path) -> None:
    draw = random.Random(11)
    texts = tmp_path / "in"
    texts.mkdir()
    for number in range(8):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(3, 60))) for _ in range(200)]
        (texts / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    assert start(texts, tmp_path / "cold").wait() == 0  # compiles loops, if no test did before
    begun = time.monotonic()
    assert start(texts, tmp_path / "reference").wait() == 0
    duration = time.monotonic() - begun
    expected = output(tmp_path / "reference")
    kills = completed = 0
    out = tmp_path / "out-0"
    while kills < KILLS:
        process = start(texts, out)
        try:
            process.wait(timeout=draw.uniform(0.2, 1.0) * duration)
        except subprocess.TimeoutExpired:
            # The parent only, or all at once: workers must go by themselves, and never finish half.
            if draw.random() < 0.5:
                os.kill(process.pid, signal.SIGKILL)
            else:
                os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        wait_for_workers(process.pid)
        if (out / MANIFEST).exists():  # finished: nothing is left to interrupt, so start over
            assert output(out) == expected
            completed += 1
            out = tmp_path / f"out-{completed}"
    assert start(texts, out).wait() == 0
    assert output(out) == expected
    assert list(out.rglob(".tmp-*")) == []
    Corpus.open(out, verify=True)
    again = prepare(
        paths=[str(texts)],
        out=str(tmp_path / "here"),
        tokenizer="train:600",
        shard_tokens=5000,
        validation_share=0.1,
        read={"split": "line"},
    )
    assert again["documents"]["kept"] == Corpus.open(out).documents
