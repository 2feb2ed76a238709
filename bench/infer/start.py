"""What does `brimful predict` cost before it computes? CPU seconds of whole processes, by kind of model.

A few short texts go through each kind of model, all with random weights: a student of two layers of
256, and MiniLM's shape of six layers of 384, with torch and as an ONNX export; and an encoder. The floors are
what nobody can leave out: Python with onnxruntime, with torch. CPU seconds count all threads, in the program
and in the kernel.

    python -m bench.infer.start [--texts 39] [--rounds 5] [--out FILE.json]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts, timed
from bench.common.record import Record

FLOORS = {"onnxruntime": "onnxruntime", "torch": "torch"}
MODELS = {
    "student-onnx": "onnxruntime",
    "minilm-onnx": "onnxruntime",
    "student": "torch",
    "minilm": "torch",
    "encoder": "torch",
}
"""The kinds of models, and the floor of each."""
MAKE = """
import sys
from pathlib import Path
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from brimful import Encoder, TaskModel
from brimful.commands.export import export
from brimful.model.heads import SequenceHead
from brimful.model.shape import EncoderConfig
from brimful.tasks.classification import Classification

folder, texts = Path(sys.argv[1]), int(sys.argv[2])
pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(20_000))]
tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
ends = [("[CLS]", 2), ("[SEP]", 3)]
tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
random = np.random.default_rng(0)
words = [random.integers(0, 20_000, random.integers(5, 40)) for _ in range(texts)]
rows = [" ".join(f"w{word}" for word in each) for each in words]
(folder / "texts.txt").write_text("".join(f"{row}\\n" for row in rows))
labels = ["a", "b", "c"]
torch.manual_seed(0)
for name, layers, width in (("student", 2, 256), ("minilm", 6, 384)):
    shape = {"hidden_size": width, "layers": layers, "heads": width // 32, "intermediate_size": 4 * width}
    encoder = Encoder(EncoderConfig(vocabulary_size=len(pieces), max_length=512, **shape))
    encoder.tokenizer = tokenizer
    model = TaskModel(Classification(labels), encoder, SequenceHead(encoder, 3), 512, pairs=False)
    model.save(folder / name, token_types=False)
    export(run=str(folder / name), out=str(folder / f"{name}-onnx"), format="onnx")
encoder.save(folder / "encoder")
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """The processes that are measured; each prints a JSON object."""
    floors = {
        name: [sys.executable, "-c", f"import {names}; print('{{}}')"] for name, names in FLOORS.items()
    }
    verbs = {}
    for name in MODELS:
        out = folder / f"out-{name}{'.npy' if name == 'encoder' else '.jsonl'}"
        options = ["--model", str(folder / name), "--input", str(folder / "texts.txt"), "--output", str(out)]
        verbs[name] = [sys.executable, "-m", "brimful", "predict", *options, "--json"]
    return floors | verbs


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=39)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    facts: dict[str, Any] = {
        "bench": "infer.start",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine_facts(),
    }
    record = Record(facts | {"texts": options.texts, "rounds": options.rounds}, options.out)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([sys.executable, "-c", MAKE, str(folder), str(options.texts)], check=True)
        wanted = commands(folder)
        runs: dict[str, list[Any]] = {name: [] for name in wanted}
        for turn in range(options.rounds + 1):
            for name, command in wanted.items():
                run = timed(command, options.cores)
                if turn:  # the first turn reads files from the disk
                    runs[name].append(run)
    print(f"{'':22} CPU seconds (least-most)  above its floor   wall  peak MB")
    medians = {name: statistics.median(run.cpu for run in each) for name, each in runs.items()}
    for name, each in runs.items():
        cpu = [run.cpu for run in each]
        wall = statistics.median(run.wall for run in each)
        peak = max(run.peak_mb for run in each)
        above = medians[name] - medians[MODELS.get(name, name)]
        spread = f"{medians[name]:11.2f} ({min(cpu):.2f}-{max(cpu):.2f})"
        print(f"{name:22} {spread} {above:16.2f} {wall:6.2f} {peak:8.0f}")
        row = {"side": name, "cpu_seconds": medians[name], "all_cpu_seconds": cpu, "above_floor": above}
        record.add(row | {"floor": MODELS.get(name), "wall_seconds": wall, "peak_mb": peak})


if __name__ == "__main__":
    main()
