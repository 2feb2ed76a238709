"""A pretraining step on a GPU, within the minutes that there are: what matters most comes first.

First the card's matrix rate (8192^3 in bf16), then training steps in bf16 autocast with float32 weights
(bench/gpu/cases.py). DIR/gpu.json is written after each step. A step for which the time does not suffice is
left out and named; the same command continues with it. Steps of one model and length whose batch is the same,
as Brimful's and the unpadded peer's, have the same first loss.

Nothing is needed here but torch, numpy, safetensors, tokenizers and pyyaml; `transformers` and flash_attn are
for peers.

    python -m bench.gpu --out DIR --minutes 8
    python -m bench.gpu --out DIR --cases "base|graphs"      # only these steps
    python -m bench.gpu --out DIR --device cpu      # toy sizes: does it run?
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.common.record import Record, Row
from bench.common.turns import Worker, WorkerError
from bench.gpu.cases import CASES, TOY_CASES, Case

LEAST_SECONDS = 10.0  # below it nothing is begun
TIME_IS_OVER = "the time is over"
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # as torch.use_deterministic_algorithms wants it


class Session:
    """The clock, the record with the rows of an earlier call, and the device's properties."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until = time.monotonic() + 60 * options.minutes
        self.left_out: list[str] = []
        self.longest = LEAST_SECONDS
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / "gpu.json"
        self.record = Record("gpu", ("brimful/model", "brimful/kernels", "brimful/train"), file)
        if file.is_file():
            rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
            self.record.rows = [row for row in rows if "seconds" in row]  # what failed is tried again

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()

    def add(self, kind: str, line: str, **figures: Any) -> None:
        """Write a row, and print a line of it."""
        self.record.add({"row": kind, **figures})
        print(line, flush=True)

    def start(self, worker: Worker) -> dict[str, Any]:
        """Let a worker take the device: {} or {"error": why it doesn't}."""
        found = self.ask(worker, "start", name=self.options.device)
        if "error" in found:
            return found
        self.record.facts |= found
        return {}

    def ask(self, worker: Worker, command: str, **values: Any) -> dict[str, Any]:
        """What the worker answers before the time is over, or {"error": why it doesn't}."""
        try:
            return worker.ask(command, seconds=max(0.0, self.left), **values)
        except TimeoutError:
            return {"error": TIME_IS_OVER}
        except WorkerError as error:
            return {"error": str(error)}

    def is_done(self, case: Case) -> bool:
        """Whether an earlier call has measured a case."""
        return any(row.get("case") == asdict(case) for row in self.record.rows)

    def lacks(self, case: Case) -> str | None:
        """Why a case cannot be measured here, if it cannot."""
        for name in ("transformers", "flash_attn"):
            wanted = case.side == "unpadded" or (name == "transformers" and case.side != "brimful")
            if wanted and not self.record.facts[name]:
                return f"{name} is not importable"
        return None


def run_cases(session: Session, cases: Sequence[Case], rate: float) -> None:
    """A row for each case that the time suffices for."""
    for case in cases:
        if session.is_done(case):
            continue
        if reason := session.lacks(case):
            line = f"{case.name}: skipped, {reason}"
            session.add("case", line, case=asdict(case), name=case.name, skipped=reason)
            continue
        if session.left < session.longest:
            session.left_out.append(case.name)
            continue
        began = time.monotonic()
        with Worker("bench.gpu.worker", DETERMINISTIC if case.deterministic else {}) as worker:
            found = session.start(worker) or session.ask(worker, "measure", case=asdict(case), rate=rate)
        session.longest = max(session.longest, time.monotonic() - began)
        _add_case(session, case, found)


def _add_case(session: Session, case: Case, found: Row) -> None:
    if found.get("error") == TIME_IS_OVER:
        session.left_out.append(case.name)
        return
    line = f"{case.name}: failed: {found['error']}" if "error" in found else _line(case, found)
    session.add("case", line, case=asdict(case), name=case.name, **found)


def _line(case: Case, found: Row) -> str:
    rate, mfu = found["tokens_per_second"], found["model_flops_utilisation"] or float("nan")
    return f"{case.name:48} {rate:12,.0f} real tokens/s, MFU {mfu:.1%}, first loss {found['loss']:.4f}"


def main(arguments: list[str] | None = None) -> None:
    """The rate, then the cases, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="a folder for gpu.json")
    parser.add_argument("--minutes", type=float, default=8.0, help="never more than that")
    parser.add_argument("--cases", type=re.compile, help="a regular expression of steps")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: toy sizes")
    options = parser.parse_args(arguments)
    cases = CASES if options.device == "cuda" else TOY_CASES
    if options.cases is not None:
        cases = tuple(case for case in cases if options.cases.search(case.name))
        if not cases:
            sys.exit(f"bench: no step is named like {options.cases.pattern!r}: see bench/gpu/cases.py")
    session = Session(options)
    with Worker("bench.gpu.worker") as worker:
        reason = session.start(worker).get("error")
        if reason:
            sys.exit(f"bench: no worker: {reason}")
        facts = session.record.facts
        if facts["device"] is None:
            sys.exit("bench: torch sees no CUDA device here; --device cpu tries the logic at toy sizes")
        print(f"{facts['device']}, torch {facts['torch']}, {options.minutes:g} minutes", flush=True)
        rate = session.ask(worker, "rate")
    if "error" in rate:
        sys.exit(f"bench: the matrix rate could not be measured: {rate['error']}")
    teraflops = rate["flops_per_second"] / 1e12
    session.add("rate", f"large bf16 matrix products: {teraflops:.1f} Tflop/s", **rate)
    run_cases(session, cases, rate["flops_per_second"])
    facts["left_out"] = session.left_out
    session.record.write()
    if session.left_out:
        print(f"left out, for want of time: {'; '.join(session.left_out)}")


if __name__ == "__main__":
    main()
