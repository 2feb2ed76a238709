"""A pretraining step on a GPU, within the minutes that there are: what matters most comes first.

First the card's matrix rate (8192^3 in bf16), then training steps in bf16 autocast with float32 weights
(bench/gpu/cases.py): real tokens a second, model flops utilisation (MFU: against the dense peak of the card's
data sheet), the share of the matrix rate, memory, and what bounds the step. Each row is in DIR/rows.jsonl as
soon as it is measured, all of them in DIR/gpu.json at the end. A case for which the time does not suffice is
left out and named. Each case has a process of its own; most of its time goes into compiling.

Model flops are what the model needs, not what is computed: matrices for real tokens, the decoder for masked
ones, attention for pairs within sequences (the sum of squared lengths, not capacity squared), nothing twice.
Lengths are as in bench/step.

Whether the numbers are right is for `pytest tests/gpu`, which compares them with float64. Nothing is needed
here but torch, numpy, safetensors, tokenizers and pyyaml; `transformers` is a peer where it is.

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts
from bench.common.turns import Worker, WorkerError
from bench.gpu.cases import CASES, TOY_CASES, Case

LEAST_SECONDS = 10.0  # below it nothing is begun
LOSS_TOLERANCE = 5e-2  # of bf16
TIME_IS_OVER = "the time is over"
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # as torch.use_deterministic_algorithms wants it


class Session:
    """The clock, the rows, and the device's properties."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until = time.monotonic() + 60 * options.minutes
        self.rows: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.longest = LEAST_SECONDS
        self.facts: dict[str, Any] = {}
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "rows.jsonl").write_text("", encoding="utf-8")

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()

    def add(self, kind: str, line: str, **figures: Any) -> None:
        """Write a row, and print a line of it."""
        self.rows.append({"row": kind, **figures})
        with (self.options.out / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.rows[-1]) + "\n")
        print(line, flush=True)

    def start(self, worker: Worker) -> dict[str, Any]:
        """Let a worker take the device: {} or {"error": why it doesn't}."""
        found = self.ask(worker, "start", name=self.options.device, threads=self.options.threads)
        if "error" in found:
            return found
        self.facts = found
        return {}

    def ask(self, worker: Worker, command: str, **values: Any) -> dict[str, Any]:
        """What the worker answers before the time is over, or {"error": why it doesn't}."""
        try:
            return worker.ask(command, seconds=max(0.0, self.left), **values)
        except TimeoutError:
            return {"error": TIME_IS_OVER}
        except WorkerError as error:
            return {"error": str(error)}

    def write(self) -> None:
        """All of it in one file."""
        record = {
            "bench": "gpu",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine_facts("brimful/model", "brimful/kernels", "brimful/train"),
            **self.facts,
            "minutes": self.options.minutes,
            "cases": self.options.cases.pattern if self.options.cases else None,
            "rows": self.rows,
            "left_out": self.left_out,
        }
        (self.options.out / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def run_cases(session: Session, cases: Sequence[Case], rate: float) -> None:
    """A row for each case that the time suffices for."""
    for case in cases:
        if session.left < session.longest:
            session.left_out.append(case.name)
            continue
        began = time.monotonic()
        with Worker("bench.gpu.worker", DETERMINISTIC if case.deterministic else {}) as worker:
            found = session.start(worker) or session.ask(worker, "measure", case=asdict(case), rate=rate)
        session.longest = max(session.longest, time.monotonic() - began)
        _add_case(session, case, found)


def _add_case(session: Session, case: Case, found: dict[str, Any]) -> None:
    if found.get("error") == TIME_IS_OVER:
        session.left_out.append(case.name)
    elif "error" in found or "out_of_memory" in found:
        reason = found.get("error", "out of memory")
        session.add("case", f"{case.name}: failed: {reason}", case=asdict(case), name=case.name, **found)
    else:
        found |= {"loss_agrees": _loss_agrees(session, case, found)}
        session.add("case", _line(case, found), case=asdict(case), name=case.name, **found)


def _loss_agrees(session: Session, case: Case, found: dict[str, Any]) -> bool:
    """Whether the same weights and batch had the same loss however the step was made."""

    def key(case: dict[str, Any], tokens: int) -> tuple[Any, ...]:
        return case["model"], case["architecture"], case["length"], case["side"], tokens

    same = [
        row["loss"]
        for row in session.rows
        if row["row"] == "case"
        and "loss" in row
        and key(row["case"], row["tokens"]) == key(asdict(case), found["tokens"])
    ]
    return all(abs(loss - found["loss"]) < LOSS_TOLERANCE for loss in same)


def _line(case: Case, found: dict[str, Any]) -> str:
    notes = "" if found["loss_agrees"] else "  LOSS DIFFERS"
    if "bit_equal" in found:
        notes += f"  bit-equal: {found['bit_equal']}"
    shares = " ".join(
        f"{kind} {100 * found[f'share_{kind}']:.0f}" for kind in ("matrix", "attention", "other", "gaps")
    )
    memory = f"{found['peak_gib']:5.1f}" if "peak_gib" in found else "    -"
    mfu = found["model_flops_utilisation"]
    utilisation = "unknown" if mfu is None else f"{100 * mfu:.1f} %"
    return (
        f"{case.name:48} {found['tokens']:6} slots {found['tokens_per_second']:12,.0f} tokens/s"
        f"  MFU {utilisation}, {100 * found['share_of_matrix_rate']:.1f} % of the matrix rate  {memory} GiB"
        f"  % of time: {shares}{notes}"
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def main(arguments: list[str] | None = None) -> None:
    """The rate, then the cases, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="a folder for rows.jsonl and gpu.json")
    parser.add_argument("--minutes", type=float, default=8.0, help="never more than that")
    parser.add_argument("--cases", type=_pattern, help="a regular expression of steps")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: toy sizes")
    parser.add_argument("--threads", type=int, help="of the CPU; torch's default without it")
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
        if session.facts["device"] is None:
            sys.exit("bench: torch sees no CUDA device here; --device cpu tries the logic at toy sizes")
        facts = session.facts
        print(f"{facts['device']}, torch {facts['torch']}, {options.minutes:g} minutes", flush=True)
        rate = session.ask(worker, "rate")
    try:
        if "error" in rate:
            sys.exit(f"bench: the matrix rate could not be measured: {rate['error']}")
        teraflops = rate["flops_per_second"] / 1e12
        session.add("rate", f"large bf16 matrix products: {teraflops:.1f} Tflop/s", **rate)
        if not session.facts["transformers"]:
            reason = "transformers is not importable"
            for case in cases:
                if case.side == "padded":
                    session.add("case", f"{case.name}: skipped, {reason}", case=asdict(case), skipped=reason)
            cases = tuple(case for case in cases if case.side != "padded")
        run_cases(session, cases, rate["flops_per_second"])
    finally:
        session.write()
    if session.left_out:
        print(f"left out, for want of time: {'; '.join(session.left_out)}")


if __name__ == "__main__":
    main()
