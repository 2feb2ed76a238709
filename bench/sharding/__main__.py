"""What does a rank hold, and how long does an update take, with the state divided among ranks?

Real ranks on this machine (gloo, one thread each) make the same updates of one row of 512 tokens a rank, with
each optimizer and each `trainer.shard`, and with compressed gradients. The bytes are those of the tensors
that a rank holds when the optimizers step: the parameters, their gradients and the optimizers' states, each
memory once, of the rank that holds most. The optimizers' step includes what ranks send for it. Ranks share
the memory of this machine, so sending costs no network's time: times say what the work itself takes.

    python -m bench.sharding [--ranks 2] [--model mini] [--updates 8] [--quick] [--out FILE.json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench.common.processes import machine_facts
from bench.common.study import table
from bench.train.sides import Job, write_corpus


def measured(ranks: int, model: str, updates: int) -> list[dict[str, Any]]:
    """The rows of all variants."""
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Job(model, rows=1, updates=updates, tokens=200_000), Path(folder))
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        worker = ["-m", "bench.sharding.worker", folder, model, str(updates)]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        subprocess.run([sys.executable, *launcher, *worker], check=True, env=environment)
        return [json.loads(line) for line in (Path(folder) / "rows.jsonl").read_text().splitlines()]


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table: MB (10^6 bytes) and milliseconds."""
    lines = []
    for row in rows:
        how = row.get("shard") or f"none, sent in {row['compression']}"
        parts = [row[name] / 1e6 for name in ("parameters", "gradients", "states")]
        numbers = [f"{number:.1f}" for number in (*parts, sum(parts))]
        times = [f"{1e3 * row[name]:.0f}" for name in ("step", "update")]
        lines.append([row["optimizer"], how, *numbers, *times])
    heads = ["optimizer", "shard", "parameters", "gradients", "states", "all", "step, ms", "update, ms"]
    print(table(heads, lines))


def main() -> None:
    """Measure, print the table, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model, updates = ("bare", 2) if options.quick else (options.model, options.updates)
    rows = measured(options.ranks, model, updates)
    facts = {**machine_facts(), "torch": torch.__version__, "ranks": options.ranks, "model": model}
    if options.out:
        options.out.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    show(rows)


if __name__ == "__main__":
    main()
