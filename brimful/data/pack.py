"""The verb `brimful pack`: how full rows get on prepared data or a length histogram."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from brimful.config import verb
from brimful.corpus.shards import Corpus
from brimful.data.blocks import PackingConfig
from brimful.data.sequences import cut_documents
from brimful.errors import BrimfulError
from brimful.packing.bounds import lower_bound
from brimful.packing.histogram import count_lengths, padded_efficiency
from brimful.packing.pack_first import best_fit
from brimful.storage import read_json, write_json


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """Plan rows and report how full they are."""

    data: Annotated[str, tyro.conf.Positional]
    """Folder made by `brimful prepare`, or JSON {"counts": [...]}: counts[i] sequences of length i + 1."""
    out: str | None = None
    """JSON file to write the plan to: patterns of lengths and how many rows follow each."""
    packing: PackingConfig = PackingConfig()
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""


def _counts(config: PackConfig) -> np.ndarray:
    """int64 (longest + 1,): sequences of each length."""
    path = Path(config.data)
    if path.is_dir():
        corpus = Corpus.open(path)
        documents = np.arange(corpus.documents)
        return count_lengths(cut_documents(corpus, documents, config.packing.max_length).length)
    value = read_json(path)
    counts = value.get("counts") if isinstance(value, dict) else None
    if not (isinstance(counts, list) and counts and all(isinstance(n, int) and n >= 0 for n in counts)):
        raise BrimfulError(f'{path} must be a JSON object with "counts": a list of whole numbers')
    if len(counts) > config.packing.capacity:
        raise BrimfulError(
            f"{path} has sequences of {len(counts)} tokens; raise --packing.capacity to at least that"
        )
    return np.array([0, *counts], dtype=np.int64)


@verb(PackConfig)
def pack(config: PackConfig) -> dict[str, Any]:
    """Plan rows for prepared data or a length histogram, and say how close to the limit the plan is.

    Returns:
        sequences, tokens, rows, `lower_bound` (no packing has fewer rows), the efficiency of the plan and of
        padding, and the seconds that planning took.

    Raises:
        BrimfulError: neither prepared data nor a histogram, or sequences longer than a row.
    """
    counts = _counts(config)
    if config.dry_run:
        return {"dry_run": True, "sequences": int(counts.sum())}
    started = time.perf_counter()
    plan = best_fit(counts, config.packing.capacity, config.packing.depth)
    seconds = time.perf_counter() - started
    if config.out:
        rows = [{"lengths": p, "rows": n} for p, n in zip(plan.patterns, plan.repeats.tolist(), strict=True)]
        write_json(config.out, {"capacity": plan.capacity, "patterns": rows})
    return {
        "sequences": plan.sequences,
        "tokens": plan.tokens,
        "capacity": plan.capacity,
        "rows": plan.rows,
        "lower_bound": lower_bound(counts, plan.capacity),
        "most_sequences_in_a_row": plan.depth,
        "efficiency": plan.efficiency,
        "padded_efficiency": padded_efficiency(counts),
        "seconds": seconds,
    }
