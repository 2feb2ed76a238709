"""What does pruning a vocabulary take and leave, with real tokenizers on real text?

For each tokenizer, processes of one thread take turns: one only encodes the corpus with `tokenizers`, which
is the floor; the other prunes. Their CPU time counts, without starting and loading. Then the pieces, the
tokens and unknown tokens of held-out text, and whether every text of the corpus keeps its encoding.

    python -m bench.pruning TOKENIZER... --corpus FILE... --unseen FILE [--rounds 3] [--out FILE.json]

Texts are the lines of .txt files; `demo` stands for the demo's reviews (their own training and test sides).
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

from bench.common.processes import machine_facts, timed


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pruning", description=__doc__)
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--corpus", nargs="+", default=["demo"])
    parser.add_argument("--unseen", default="demo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    result = {"bench": "pruning", **machine_facts(), "rounds": options.rounds, "rows": []}
    for name in options.tokenizers:
        sides: dict[str, list] = {"encode": [], "prune": []}
        for _ in range(options.rounds):
            for side, runs in sides.items():
                given = [side, name, options.unseen, *options.corpus]
                runs.append(timed([sys.executable, "-m", "bench.pruning.worker", *given], cores))
        row = {"tokenizer": name, **sides["prune"][0].facts}
        for side, runs in sides.items():
            row[f"{side}_seconds"] = statistics.median(run.facts["seconds"] for run in runs)
            row[f"{side}_peak_mb"] = statistics.median(run.peak_mb for run in runs)
        del row["seconds"]
        print(json.dumps(row, ensure_ascii=False), flush=True)
        result["rows"].append(row)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
