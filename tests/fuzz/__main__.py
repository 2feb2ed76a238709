"""`python -m fuzz`: run cases, say what came of them, and print each fault once, with how to see it again."""

import argparse
import contextlib
import functools
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz import server

ROOT = Path(__file__).parents[2]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by default a new one")
    parser.add_argument("--cases", type=int, default=1000, help="how many in all")
    parser.add_argument("--only", default="", help="targets whose name this regular expression finds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--case", help="SEED:TARGET:NUMBER, the one case to run, with all that it printed")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "fuzz", help="material and failed cases")
    return parser.parse_args()


def list_cases(seed: int, weights: dict[str, int]) -> Iterator[str]:
    """Targets in turns, each as often as its weight says."""
    for turn in itertools.count():
        for round_ in range(max(weights.values())):
            for name, weight in weights.items():
                if round_ < weight:
                    yield f"{seed}:{name}:{turn * weight + round_}"


def _print_faults(results: list[dict[str, Any]]) -> None:
    cases: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results:
        for kind, place in result["faults"]:
            cases[kind, place].append(result["case"])
    for (kind, place), names in sorted(cases.items(), key=lambda item: (item[0][0], -len(item[1]))):
        print(f"{kind} ({len(names)}): {place}\n    make fuzz CASE={names[0]}")


def main() -> int:
    """Returns 1 if there are faults."""
    options = _options()
    out = options.out.absolute()
    for old in ("material", "failed"):
        shutil.rmtree(out / old, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    server.prepare_parent()
    print(f"making the files to mutate in {out}", file=sys.stderr)
    from fuzz.cases import run_case
    from fuzz.material import build
    from fuzz.targets import targets

    with (
        open(out / "material.log", "w", encoding="utf-8") as log,  # what the verbs print
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        build(out / "material", out)
    if options.case:
        result = run_case(out, options.case)
        print(result["said"] if result["faults"] else f"{result['said']}\nno fault")
        return min(1, len(result["faults"]))
    started = time.monotonic()
    weights = {name: target.weight for name, target in targets().items() if re.search(options.only, name)}
    cases = itertools.islice(list_cases(options.seed, weights), options.cases)
    results = []
    with (
        multiprocessing.get_context("fork").Pool(options.workers) as pool,
        open(out / "cases.jsonl", "w", encoding="utf-8") as log,
    ):
        for result in pool.imap_unordered(functools.partial(run_case, out), cases):
            results.append(result)
            log.write(json.dumps(result) + "\n")
            if len(results) % 100 == 0:
                failed = sum(bool(result["faults"]) for result in results)
                print(f"{len(results):,} cases, {failed:,} with faults", file=sys.stderr)
    _print_faults(results)
    endings = Counter(result["ended"] for result in results)
    print(f"seed {options.seed}: {dict(endings)} in {time.monotonic() - started:.0f} s")
    return int(any(result["faults"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
