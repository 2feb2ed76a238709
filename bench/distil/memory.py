"""What the texts of a distillation take in the memory of several ranks on one host.

A file of texts is encoded and kept as `brimful distil` does it. Then `--ranks` processes read all of its
examples at the same time, and each says what its maps of the kept files hold: resident pages, and its share
of them, where a page that n processes hold counts 1/n. TinyBERT's code keeps each example in each process, as
int64 tensors padded to the full length: that is not run, but reckoned from their sizes.

    python -m bench.distil.memory [--rows 200000] [--ranks 4] [--max-length 128] [--quick] [--out FILE.json]
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.common.wheels import minilm
from brimful.base.cache import VARIABLE
from brimful.base.randomness import derive_key, hash_words
from brimful.corpus.text.tokenizer import load
from brimful.data.example_batches import batch_of
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.classification import Classification

TENSORS = 3
"""int64 tensors of a padded example: ids, mask and segments."""
BATCH = 32


def write_texts(path: Path, rows: int, tokenizer: Tokenizer) -> None:
    """Random texts of 4 to 60 words, each a piece of the vocabulary."""
    words = np.array([word for word in sorted(tokenizer.get_vocab()) if word.isalpha()])
    with open(path, "w", encoding="utf-8") as file:
        for row in range(rows):
            draws = hash_words(derive_key("bench", "text", row), np.arange(60))
            file.write(" ".join(words[draws % np.uint64(len(words))][: 4 + int(draws[0]) % 57]) + "\n")


def mapped(folder: Path) -> dict[str, float]:
    """MB of this process's maps of the files in a folder: `Rss`, resident, and `Pss`, its share."""
    found = {"Rss": 0.0, "Pss": 0.0}
    ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            ours = bool(rest) and rest[-1].startswith(str(folder))
        elif ours and first.rstrip(":") in found:
            found[first.rstrip(":")] += int(rest[0]) / 1024
    return found


def rank(
    path: Path, encoder: Path, max_length: int, ready: Barrier, answers: "multiprocessing.Queue[Any]"
) -> None:
    """Read every example, in batches, and say what is resident while all ranks have."""
    files = TaskFiles(Classification, labelled=False)
    tokenizer = load(encoder)
    data = files.encode(Classification([]), path, tokenizer, max_length, None)
    tokens = 0
    for start in range(0, len(data), BATCH):
        batch = batch_of(data.examples, np.arange(start, min(start + BATCH, len(data))))
        tokens += int((batch.tokens != data.examples.pad).sum())
    ready.wait()
    answers.put({**mapped(Path(os.environ[VARIABLE])), "tokens": tokens, "texts": len(data)})
    ready.wait()


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """The cache of task files is in `folder`."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--quick", action="store_true", help="few texts, two ranks")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.ranks = 500, 2
    encoder = minilm(DATA)
    facts = {"bench": "distil.memory", "date": datetime.now(UTC).isoformat(timespec="seconds")}
    record = Record(facts | machine_facts(), options.out)
    with tempfile.TemporaryDirectory() as place, kept_in(Path(place) / "cache"):
        path = Path(place) / "texts.txt"
        tokenizer = load(encoder)
        write_texts(path, options.rows, tokenizer)
        files = TaskFiles(Classification, labelled=False)
        files.encode(Classification([]), path, tokenizer, options.max_length, None)  # kept from here on
        spawned = multiprocessing.get_context("spawn")
        ready, answers = spawned.Barrier(options.ranks), spawned.Queue()
        given = (path, encoder, options.max_length, ready, answers)
        ranks = [spawned.Process(target=rank, args=given) for _ in range(options.ranks)]
        for process in ranks:
            process.start()
        said = [answers.get() for _ in ranks]
        for process in ranks:
            process.join()
    padded = said[0]["texts"] * TENSORS * 8 * options.max_length / 2**20
    record.add(
        {
            "texts": said[0]["texts"],
            "tokens": said[0]["tokens"],
            "ranks": options.ranks,
            "max_length": options.max_length,
            "resident_mb_of_a_rank": statistics.median(one["Rss"] for one in said),
            "mb_of_all_ranks": sum(one["Pss"] for one in said),
            "padded_mb_of_all_ranks": padded * options.ranks,
        }
    )
    row = record.rows[-1]
    print(
        f"{row['texts']:,} texts, {row['tokens']:,} tokens, {options.ranks} ranks; MB of maps: each has"
        f" {row['resident_mb_of_a_rank']:.1f} resident, all together {row['mb_of_all_ranks']:.1f};"
        f" as padded int64 tensors in each rank {row['padded_mb_of_all_ranks']:,.1f} (reckoned)"
    )


if __name__ == "__main__":
    main()
