"""What does `brimful serve` cost, how fast does it answer, and what does it do beyond its capacity?

    cost      CPU seconds of the server for 1,000 texts, with 1 text a request and with 32, against those of
              `brimful predict`
    latency   the capacity (texts a second of the best closed loop); p50 and p99 of an open loop at 50, 80 and
              95 % of it; the most texts a second with p99 under 50 ms
    overload  ten times the capacity, a tenth of it broken requests and clients that leave; then SIGTERM

The client is a process of its own on the same machine, and its CPU time is reported apart. `--sides` are
servers: Brimful in a number format, or a peer (peers.py). Latency is measured of each, the rest of the first.

    python -m bench.serve MODEL [MODEL ...] --test TEST.tsv [--questions ...] [--sides ...] [--out FILE.json]
"""

import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path

import torch

from bench.common.record import Record
from bench.serve.cost import cost
from bench.serve.latency import latency
from bench.serve.overload import overload
from bench.serve.sides import FORMATS, PEERS, Side

QUESTIONS = ("cost", "latency", "overload")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("models", nargs="+", type=Path, help="task models, or runs that have one")
    parser.add_argument("--test", type=Path, required=True, help="a labelled table, whose texts are sent")
    parser.add_argument("--questions", nargs="+", default=list(QUESTIONS), choices=QUESTIONS)
    parser.add_argument("--sides", nargs="+", default=["auto"], choices=[*FORMATS, *PEERS])
    parser.add_argument("--peers", type=Path, help="the Python of an environment for peers.py")
    parser.add_argument("--int8", type=Path, help="the model as `brimful export --format int8`")
    parser.add_argument("--openvino", type=Path, help="the model as `brimful export --format onnx`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each open loop")
    parser.add_argument("--overload-seconds", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=1, help="texts a request of the overload")
    parser.add_argument("--texts", type=int, default=3_000, help="of each load of `cost`")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="of texts and arrivals")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    measures = ("brimful/serving", "brimful/kernels", "brimful/model")
    facts = {"torch": torch.__version__, "threads": os.environ.get("OMP_NUM_THREADS"), "seed": options.seed}
    facts |= {"test": options.test.name, "sha256": hashlib.sha256(options.test.read_bytes()).hexdigest()}
    record = Record("serve", measures, options.out, **facts)
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            sides = [Side(model, name, options, Path(folder), record) for name in options.sides]
            first, accuracy = sides[0], sides[0].accuracy()
            first.add(question="accuracy", texts=len(first.texts), accuracy=accuracy)
            print(f"{model.name}, {first.name}: accuracy {accuracy:.4f} of {len(first.texts):,}", flush=True)
            if "cost" in options.questions:
                cost(first)
            if "latency" in options.questions:
                latency(sides)
            if "overload" in options.questions:
                overload(first)


if __name__ == "__main__":
    main()
