"""Pretraining's data path on the CPU: how fast is it, and does a step of 30 ms wait for it?

    alone      real tokens a second without any step, masks and the planning of blocks included, on one core;
               also as the first of 64 ranks, which plans for all
    waiting    the share of the time that steps of 30 ms wait, with 0 and 2 updates made ahead: a step that
               sleeps, as a host whose GPU computes; one in Python, which never gives the interpreter's lock
               away; one of many operations on tiny tensors, as a host that launches kernels. Also by how much
               the step itself is slower while the loader's thread works

Corpora of random tokens are written to a scratch folder and deleted at the end. What reads them is what
`brimful pretrain` has. Alternatives take turns, and medians count.

    python -m bench.loader [--rounds 5] [--out FILE.json]
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from bench.common.record import Record
from bench.common.workload import VOCABULARY
from brimful.corpus.shards import Corpus, TokenBatch, write_manifest, write_shard
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.data.config import MaskingConfig, PackingConfig
from brimful.data.loader import prefetch
from brimful.data.mixture import DataSource
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources, make_stream

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORD_STARTS, SENTENCE_STARTS = 0.7, 0.05  # proportions of tokens, as in English with 30,000 pieces
SHARD_TOKENS = 4_000_000
LENGTHS = {"40": (38, 128), "250": (340, 512)}
"""By the mean length of a sequence, about: the mean of the documents, and the most of a sequence."""
SLOTS_PER_UPDATE = 16_384  # half a million tokens a second at 30 ms
TURN_SECONDS = 2.0  # a turn holds many updates
STEP_SECONDS = 0.03


def make_corpus(directory: Path, tokens: int, mean_length: int) -> Path:
    """Write a prepared folder of random tokens; a loader cares for their sizes only."""
    (directory / "shards").mkdir(parents=True)
    words = [f"w{number}" for number in range(VOCABULARY - len(SPECIAL_TOKENS))]
    ids = {name: number for number, name in enumerate([*SPECIAL_TOKENS, *words])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL_TOKENS])
    tokenizer.save(str(directory / "tokenizer.json"))
    digest = tokenizer_hash(load(directory / "tokenizer.json"))
    facts: dict[str, Any] = {"vocabulary_size": VOCABULARY, "config_hash": "random", "inputs": [""]}
    names = []
    for begin in range(0, tokens, SHARD_TOKENS):
        names.append(f"random-{len(names):04d}")
        batch = random_documents(min(SHARD_TOKENS, tokens - begin), mean_length, seed=begin)
        write_shard(directory / "shards", names[-1], [batch], tokenizer_hash=digest, **facts)
    write_manifest(directory, names)
    return directory


def random_documents(tokens: int, mean_length: int, seed: int) -> TokenBatch:
    """Draw documents of about `tokens` tokens together; their lengths are exponential."""
    rng = np.random.default_rng(seed)
    lengths = np.ceil(rng.exponential(mean_length, tokens // mean_length + 1)).astype(np.int64)
    size = int(lengths.sum())
    words = rng.random(size, dtype=np.float32) < WORD_STARTS
    sentences = rng.random(size, dtype=np.float32) < SENTENCE_STARTS
    sentences[np.cumsum(lengths) - lengths] = True  # a document starts a sentence
    ids = rng.integers(len(SPECIAL_TOKENS), VOCABULARY, size, dtype=np.uint16)
    return TokenBatch(ids, words | sentences, sentences, lengths, np.zeros((len(lengths), 2), dtype=np.int64))


class Reading:
    """A stream over a corpus, as the first of `world` ranks has it, and its cursor."""

    def __init__(self, corpus: Path, capacity: int, max_length: int, world: int = 1) -> None:
        opened = Corpus.open(str(corpus))
        config = PretrainConfig(
            data=(DataSource(path=str(corpus), name="random"),),
            packing=PackingConfig(capacity=capacity, max_length=max_length),
            rows_per_update=SLOTS_PER_UPDATE * world // capacity,
        )
        plans = Path(tempfile.mkdtemp(dir=corpus.parent))
        reader = SequenceReader(Tokenizer.from_file(str(opened.tokenizer_path)), MaskingConfig())
        sources = make_sources(config, {"random": opened}, plans, ahead=True)
        self.stream: RowStream = make_stream(config, sources, reader, fixed_shapes=True, rank=0, world=world)
        self.cursor = self.stream.start()
        self.take()  # plans a block and loads the compiled loops

    def take(self) -> int:
        """Take an update; return its real tokens."""
        batches, self.cursor = self.stream.take(self.cursor)
        return sum(batch.real_tokens for batch in batches)

    def tokens_per_second(self) -> float:
        """Take updates for a turn; blocks that it comes to are planned in it."""
        started, tokens = time.perf_counter(), 0
        while time.perf_counter() - started < TURN_SECONDS:
            tokens += self.take()
        return tokens / (time.perf_counter() - started)

    def train(self, step: Callable[[], None], updates: int, depth: int) -> tuple[float, float]:
        """Take updates with a step after each; return the share of waiting and the mean seconds of a step."""
        waited, in_steps, started = 0.0, 0.0, time.perf_counter()
        device = torch.device("cpu")
        arguments = (self.stream, self.cursor, updates)
        for update in prefetch(*arguments, normalizers=lambda batch: {}, device=device, depth=depth):
            waited += update.waited
            in_steps += seconds_of(step)
            self.cursor = update.cursor
        return waited / (time.perf_counter() - started), in_steps / updates


def seconds_of(work: Callable[[], None]) -> float:
    """Do some work, and return how long it took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def repeated(work: Callable[[], None]) -> Callable[[], None]:
    """Return a step that repeats some work for 30 ms, by its time when nothing else runs."""
    count = int(STEP_SECONDS / statistics.median(seconds_of(work) for _ in range(300)))

    def step() -> None:
        for _ in range(count):
            work()

    return step


def count_in_python() -> None:
    """Some work that keeps the interpreter's lock."""
    total = 0
    for number in range(2000):
        total ^= number


def add_to_tensors() -> None:
    """Some work of many short operations."""
    one = torch.zeros(1)
    for _ in range(50):
        one.add_(1.0)


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the range of what the rounds gave."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def alone_table(options: argparse.Namespace, corpora: dict[str, Path], record: Record) -> None:
    """Measure tokens a second of the loader without a step."""
    cases = {}
    for length, (_, max_length) in LENGTHS.items():
        for capacity in (1024, 8192):
            for world in (1, 64):
                cases[length, capacity, world] = Reading(corpora[length], capacity, max_length, world)
    rates = defaultdict(list)
    for _ in range(options.rounds):
        for case, reading in cases.items():
            rates[case].append(reading.tokens_per_second())
    for (length, capacity, world), values in rates.items():
        row = {"length": length, "capacity": capacity, "world": world, "tokens_per_second": spread(values)}
        record.add({"table": "alone", **row})
        millions = statistics.median(values) / 1e6
        title = f"alone, {length} tokens, rows of {capacity}, {world} ranks"
        print(f"{title}: {millions:.2f} M real tokens/s", flush=True)


def waiting_table(options: argparse.Namespace, corpora: dict[str, Path], record: Record) -> None:
    """Measure how long steps wait, and how much slower they are, with 0 and 2 updates made ahead."""
    steps = {
        "sleeping": lambda: time.sleep(STEP_SECONDS),
        "python": repeated(count_in_python),
        "launching": repeated(add_to_tensors),
    }
    for length, (_, max_length) in LENGTHS.items():
        reading = Reading(corpora[length], 8192, max_length)
        for kind, step in steps.items():
            without, with_loader = [], defaultdict(list)
            for _ in range(options.rounds):
                without.append(statistics.fmean(seconds_of(step) for _ in range(options.updates)))
                for depth in (0, 2):
                    with_loader[depth].append(reading.train(step, options.updates, depth))
            alone = statistics.median(without)
            for depth, turns in with_loader.items():
                waited = spread([share for share, _ in turns])
                seconds = statistics.median(mean for _, mean in turns)
                slower = seconds / alone - 1
                row = {"waited": waited, "step": seconds, "step_without": alone, "slower": slower}
                record.add({"table": "waiting", "length": length, "kind": kind, "depth": depth, **row})
                title = f"{kind}, {length} tokens, {depth} updates ahead"
                print(f"{title}: waits {waited['median']:.2%}, slower by {slower:.2%}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, row by row, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="folder for corpora, 1 GB (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path, help="write all figures to this JSON file")
    parser.set_defaults(updates=60, tokens=160_000_000)  # steps of a turn of `waiting`; of each corpus
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.updates, options.tokens = 1, 3, 300_000
    torch.set_num_threads(1)
    record = Record("loader", ("brimful/data",), options.out, rounds=options.rounds)
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        corpora = {}
        for length, (mean, _) in LENGTHS.items():
            corpora[length] = make_corpus(Path(scratch, length), options.tokens, mean)
        alone_table(options, corpora, record)
        waiting_table(options, corpora, record)


if __name__ == "__main__":
    main()
