"""`python -m fuzz`: run cases, say what came of them, and print each fault once, with how to see it again."""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import time
import traceback
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
    parser.add_argument(
        "--only", default="", help="targets whose name or group this regular expression finds"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--case", help="SEED:TARGET:NUMBER, the one case to run, with all that it printed")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "fuzz", help="material and failed cases")
    return parser.parse_args()


def schedule(names_and_weights: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Targets in turns, each as often as its weight says, with the number of its case."""
    turns: Counter[str] = Counter()
    while True:
        for round_ in range(max(names_and_weights.values())):
            for name, weight in names_and_weights.items():
                if round_ < weight:
                    yield name, turns[name]
                    turns[name] += 1


def _work(number: int, options: argparse.Namespace, material: Path, results: Any) -> None:
    """Put each result, and the traceback of the fuzzer's own failure, into a queue; last None."""
    try:
        _run_share(number, options, material, results)
    except BaseException:
        results.put(traceback.format_exc())
    results.put(None)


def _run_share(number: int, options: argparse.Namespace, material: Path, results: Any) -> None:
    from fuzz.cases import Case, Fuzzer
    from fuzz.targets import targets

    chosen = {n: t for n, t in targets().items() if re.search(options.only, f"{n} {t.group}")}
    order = schedule({name: target.weight for name, target in chosen.items()})
    cases = itertools.islice(order, number, options.cases, options.workers)
    fuzzer = Fuzzer(material, options.out / f"work-{number}")
    ends = time.monotonic() + options.seconds
    for name, turn in cases:
        if time.monotonic() > ends:
            break
        result = fuzzer.run(Case(options.seed, chosen[name], turn), options.out / "failed")
        results.put({
            "case": str(result.case), "group": chosen[name].group, "ended": result.ended, "file": result.file,
            "mutation": result.mutation, "seconds": result.run.seconds, "target": name,
            "faults": [(fault.kind, fault.place) for fault in result.faults],
        })  # fmt: skip


def _gather(results: Any, workers: int) -> Iterator[dict[str, Any]]:
    while workers:
        result = results.get()
        if isinstance(result, str):
            raise RuntimeError(f"a worker of the fuzzer failed:\n{result}")
        if result is None:
            workers -= 1
        else:
            yield result


def _print_table(done: list[dict[str, Any]]) -> None:
    kinds = sorted({kind for result in done for kind, _ in result["faults"]})
    header = ["read by", "cases", "ok", "refused", *kinds]
    print(f"| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for group in [*dict.fromkeys(result["group"] for result in done), "all"]:
        members = [result for result in done if group in (result["group"], "all")]
        counts = Counter(result["ended"] for result in members)
        for result in members:
            counts.update({kind for kind, _ in result["faults"]})
        numbers = [len(members), *(counts[name] for name in header[2:])]
        print(f"| {' | '.join([group, *(f'{number:,}' if number else '' for number in numbers)])} |")


def _report(done: list[dict[str, Any]]) -> int:
    """Print the table and each fault once; returns how many there are."""
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in done:
        for kind, place in result["faults"]:
            faults[kind, place].append(result["case"])
    for (kind, place), cases in sorted(faults.items(), key=lambda item: (item[0][0], -len(item[1]))):
        print(f"{kind} ({len(cases)}): {place}\n    make fuzz CASE={cases[0]}")
    _print_table(done)
    return len(faults)


def _one(case: str, material: Path, out: Path) -> int:
    from fuzz.cases import Case, Fuzzer
    from fuzz.targets import targets

    seed, name, number = case.split(":")
    fuzzer = Fuzzer(material, out / "work-one")
    result = fuzzer.run(Case(int(seed), targets()[name], int(number)), out / "failed")
    print(f"brimful {result.case.target.line}\n{result.file}: {result.mutation}")
    print(f"exit code {result.run.code} after {result.run.seconds:.1f} s\n{result.run.out}{result.run.error}")
    print("\n".join(map(str, result.faults)) or "no fault")
    return len(result.faults)


def main() -> int:
    """Returns 1 if there are faults."""
    options = _options()
    options.out = options.out.absolute()
    for old in ("material", "failed"):
        shutil.rmtree(options.out / old, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    server.prepare_parent()
    print(f"making the files to mutate in {options.out}", file=sys.stderr)
    from fuzz.material import build

    with open(options.out / "material.log", "wb") as log:  # what the verbs print
        streams = os.dup(1), os.dup(2)
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            build(options.out / "material", options.out)
        finally:
            sys.stdout.flush()
            for stream, descriptor in zip((1, 2), streams, strict=True):
                os.dup2(descriptor, stream)
    if options.case:
        return min(1, _one(options.case, options.out / "material", options.out))
    started = time.monotonic()
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    workers = [
        context.Process(target=_work, args=(number, options, options.out / "material", results), daemon=True)
        for number in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    done = []
    with open(options.out / "cases.jsonl", "w", encoding="utf-8") as log_of_cases:
        for result in _gather(results, len(workers)):
            done.append(result)
            log_of_cases.write(json.dumps(result) + "\n")
            if len(done) % 100 == 0:
                faults = sum(bool(result["faults"]) for result in done)
                speed = len(done) / (time.monotonic() - started)
                print(f"{len(done):,} cases, {faults:,} with faults, {speed:.1f} a second", file=sys.stderr)
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - started
    faults = _report(done)
    print(f"seed {options.seed}: {len(done):,} cases in {seconds:.0f} s by {options.workers} processes")
    return min(1, faults)


if __name__ == "__main__":
    sys.exit(main())
