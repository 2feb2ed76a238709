"""How much faster a run of inference is in bfloat16 than in float32 on this processor: what `auto` hangs on.

Models of random weights read made-up sequences, one run or many runs after another, on one thread: the
medians of alternated CPU times. The least cosine of a vector with float32's stands beside them.

    python -m bench.infer.formats [--models minilm base] [--rounds 7] [--out FILE.json]
"""

import argparse
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import brimful.kernels.forms  # noqa: F401  (fast forms register themselves)
from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.infer.__main__ import least_cosine
from brimful.data.examples import Examples
from brimful.exporting.gate import described_instructions
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.model.shape import Architecture, EncoderConfig
from brimful.precision.formats import InferencePrecision

SHAPES: dict[str, tuple[Architecture, int, int, int, int]] = {
    "student": ("bert", 2, 256, 4, 1024),
    "minilm": ("bert", 6, 384, 12, 1536),
    "modern": ("modern", 6, 384, 6, 576),
    "base": ("bert", 12, 768, 12, 3072),
}
"""Architecture, layers, width, heads, width of the feed-forward layer."""
RUNS = ((1, 20), (10, 50), (100, 50), (40, 256))
"""Texts, and about how many tokens each has."""
VOCABULARY = 8000
FORMATS: tuple[InferencePrecision, ...] = ("fp32", "bf16")
TOKENS = 2000
"""Short runs are repeated within a turn until they have this many tokens together."""


def examples(count: int, length: int) -> Examples:
    """Sequences of random tokens; of long ones all have one length."""
    random = np.random.default_rng(0)
    spread = random.lognormal(np.log(length), 0.5, count) if length < 200 else np.full(count, length)
    lengths = spread.astype(int).clip(4, 512)
    tokens = [random.integers(10, VOCABULARY, each).astype(np.int32) for each in lengths]
    return Examples(tokens, [np.zeros(each, np.uint8) for each in lengths], {}, 512, 0)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    facts = {"bench": "infer.formats", "date": datetime.now(UTC).isoformat(timespec="seconds")}
    facts |= {**machine_facts(), "instructions": described_instructions(), "torch": torch.__version__}
    record = Record(facts, options.out)
    for name in options.models:
        architecture, layers, width, heads, middle = SHAPES[name]
        shape = EncoderConfig(
            architecture=architecture,
            layers=layers,
            hidden_size=width,
            heads=heads,
            intermediate_size=middle,
            vocabulary_size=VOCABULARY,
        )
        torch.manual_seed(0)
        encoder = Encoder(shape).eval()
        for count, length in RUNS:
            read = examples(count, length)
            runs = max(1, TOKENS // int(read.lengths.sum()))
            seconds: dict[str, list[float]] = {each: [] for each in FORMATS}
            vectors = {}
            for turn in range(options.rounds + 1):
                for precision in FORMATS:
                    started = time.process_time()
                    for _ in range(runs):
                        vectors[precision] = text_vectors(encoder, read, precision=precision)
                    if turn:  # the first compiles
                        seconds[precision].append((time.process_time() - started) / runs)
            wide, narrow = (1e3 * statistics.median(seconds[each]) for each in FORMATS)
            row = {"model": name, "texts": count, "tokens": int(read.lengths.sum())}
            row |= {"fp32_ms": wide, "bf16_ms": narrow, "times_as_fast": wide / narrow}
            row |= {"apart": 1 - least_cosine(vectors["bf16"], vectors["fp32"]), "seconds": seconds}
            record.add(row)
            print(
                f"{name:8} {count:4} texts {row['tokens']:6} tokens  fp32 {wide:8.2f} ms"
                f"  bf16 {narrow:8.2f} ms, {wide / narrow:.2f} times as fast"
                f"  1 - least cosine {row['apart']:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
