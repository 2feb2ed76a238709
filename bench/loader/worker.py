"""The process of bench/loader that reads a corpus: it makes a stream as `brimful pretrain` does, and takes
updates from it, alone or ahead of steps that are none."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from bench.common.turns import Answer, serve
from brimful.corpus.shards import Corpus
from brimful.data.config import MaskingConfig, PackingConfig
from brimful.data.loader import prefetch
from brimful.data.mixture import DataSource
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources, make_stream

TURN = 2.0  # seconds at least, so that a turn holds many updates
STEP = 0.03


class Reading:
    """A stream, and where it stands."""

    def __init__(self, corpus: str, directory: str, rank: int, world: int, config: dict[str, Any]) -> None:
        opened = Corpus.open(corpus)
        reader = SequenceReader(Tokenizer.from_file(str(opened.tokenizer_path)), MaskingConfig())
        data = (DataSource(path=corpus, name="random"),)
        packing = PackingConfig(**config["packing"])
        settings = PretrainConfig(data=data, packing=packing, rows_per_update=config["rows_per_update"])
        sources = make_sources(settings, {"random": opened}, Path(directory), ahead=rank == 0)
        self.stream: RowStream = make_stream(
            settings, sources, reader, fixed_shapes=True, rank=rank, world=world
        )
        self.cursor = self.stream.start()

    def take(self, updates: int) -> int:
        """Go on; returns the real tokens."""
        tokens = 0
        for _ in range(updates):
            batches, self.cursor = self.stream.take(self.cursor)
            tokens += sum(batch.real_tokens for batch in batches)
        return tokens


reading: list[Reading] = []


def pin(core: int) -> Answer:
    """Use one core only, in threads that start from now on too."""
    os.sched_setaffinity(0, [core])
    return {}


def setup(**values: Any) -> Answer:
    """Make the stream and take its first update, which plans a block and loads the compiled loops."""
    reading[:] = [Reading(**values)]
    reading[0].take(1)
    return {}


def alone() -> Answer:
    """Real tokens a second of a turn without any step; blocks that it comes to are planned in it."""
    started, tokens = time.perf_counter(), 0
    while time.perf_counter() - started < TURN:
        tokens += reading[0].take(1)
    return {"tokens_per_second": tokens / (time.perf_counter() - started)}


def sleeping() -> Callable[[], None]:
    """A step whose host waits for a GPU."""
    return lambda: time.sleep(STEP)


def _repeated(work: Callable[[], None]) -> Callable[[], None]:
    """So much work as a step takes when nothing else runs."""
    times = []
    for _ in range(300):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    count = int(STEP / statistics.median(times))

    def step() -> None:
        for _ in range(count):
            work()

    return step


def python() -> Callable[[], None]:
    """A step of pure Python, which never gives the interpreter's lock away by itself."""

    def count() -> None:
        total = 0
        for number in range(2000):
            total ^= number

    return _repeated(count)


def launching() -> Callable[[], None]:
    """A step of many operations on tiny tensors, as a host that launches kernels one by one."""
    one = torch.zeros(1)

    def launch() -> None:
        for _ in range(50):
            one.add_(1.0)

    return _repeated(launch)


STEPS = {"sleeping": sleeping, "python": python, "launching": launching}
steps: dict[str, Callable[[], None]] = {}


def train(step: str, updates: int, depth: int | None) -> Answer:
    """Take updates, with a step after each. Without a depth there is no loader, only steps.

    Returns:
        the share of the time spent waiting for data, and the seconds of each step.
    """
    if step not in steps:
        steps[step] = STEPS[step]()
    run = steps[step]
    took: list[float] = []

    def timed() -> None:
        started = time.perf_counter()
        run()
        took.append(time.perf_counter() - started)

    if depth is None:
        for _ in range(updates):
            timed()
        return {"seconds": took}
    waited, started = 0.0, time.perf_counter()
    device = torch.device("cpu")
    arguments = (reading[0].stream, reading[0].cursor, updates)
    for update in prefetch(*arguments, normalizers=lambda batch: {}, device=device, depth=depth):
        waited += update.waited
        timed()
        reading[0].cursor = update.cursor
    return {"waited": waited / (time.perf_counter() - started), "seconds": took}


if __name__ == "__main__":
    torch.set_num_threads(1)
    commands = (pin, setup, alone, train)
    serve({command.__name__: command for command in commands})
