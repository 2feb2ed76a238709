"""A pretraining step on a GPU, within the minutes that there are: what matters most comes first.

First the tests that need a GPU, then checks against float64 on the CPU (bench/gpu/exactness.py), the card's
matrix rate (8192^3 in bf16), and training steps in bf16 autocast with float32 weights (bench/gpu/cases.py):
real tokens a second, model flops utilisation against that rate, memory, and what bounds the step. Each row is
in DIR/rows.jsonl as soon as it is measured, all of them in DIR/gpu.json at the end. What the time does not
suffice for is left out and named.

Model flops are what the model needs, not what is computed: matrices for real tokens, the decoder for masked
ones, attention for pairs within sequences (the sum of squared lengths, not capacity squared), nothing twice.
Lengths are as in bench/step.

Nothing is needed but torch, numpy, safetensors, tokenizers and pyyaml; `transformers` is a peer where it is.
Other lengths (--histogram) need all that Brimful needs.

    python -m bench.gpu --out DIR --minutes 8 [--histogram FILE.json]
    python -m bench.gpu --out DIR --device cpu      # toy sizes: does it run?

Without a GPU, `--predict` records the steps that matter most on a device that computes nothing, and predicts
their time from a GPU's data sheet (bench/gpu/predict.py). It needs gcc and a CUDA build of torch:

    python -m bench.gpu --out DIR --predict [--device h100|a100|l40s|t4] [--python PYTHON]
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts
from bench.common.turns import Worker, WorkerError
from bench.gpu import predict
from bench.gpu.cases import CASES, TOY_CASES, Case

TESTS_SHARE = 1 / 3  # of the time, at most
CASES_SHARE = 1 / 2  # at least
LEAST_SECONDS = 10.0  # below it nothing is begun
LOSS_TOLERANCE = 5e-2  # of bf16
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # as torch.use_deterministic_algorithms wants it
PLUGINS = ("pytest_timeout", "hypothesis")  # what most tests need beside pytest


class Session:
    """The clock, the rows, and the process that holds the device."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until = time.monotonic() + 60 * options.minutes
        self.rows: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.longest: dict[str, float] = {}
        self.worker: Worker | None = None
        self.deterministic = False
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

    def start(self, deterministic: bool = False) -> Worker:
        """The worker; a new one if there is no worker or one of the other kind."""
        if self.worker is None or self.deterministic != deterministic:
            self.stop()
            self.worker = Worker("bench.gpu.worker", DETERMINISTIC if deterministic else None)
            self.deterministic = deterministic
            name, threads = self.options.device, self.options.threads
            self.facts = self.worker.ask("start", seconds=self.left, name=name, threads=threads)
        return self.worker

    def stop(self) -> None:
        """End the worker."""
        if self.worker:
            self.worker.kill()
        self.worker = None

    def ask(self, command: str, *, deterministic: bool = False, **values: Any) -> dict[str, Any]:
        """What the worker answers before the time is over, or {"error": why it doesn't}."""
        try:
            return self.start(deterministic).ask(command, seconds=self.left, **values)
        except TimeoutError:
            self.worker = None
            return {"error": "the time is over"}
        except WorkerError as error:
            if "CUDA error" in str(error) or (self.worker and self.worker.process.poll() is not None):
                self.stop()  # after this error, nothing works in that process
            return {"error": str(error)}

    def write(self) -> None:
        """All of it in one file."""
        record = {
            "bench": "gpu",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine_facts(),
            **self.facts,
            "minutes": self.options.minutes,
            "rows": self.rows,
            "left_out": self.left_out,
        }
        (self.options.out / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def run_tests(session: Session) -> None:
    """The tests marked `gpu`, as far as there is what they need."""
    lacking = [name for name in ("pytest", *PLUGINS) if not _importable(name)]
    files = [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "--continue-on-collection-errors"]
    if "pytest" not in lacking and lacking:  # these tests need no configuration and no fixtures
        files = [file for file in files if Path(file).parent.name == "gpu"]
        command += ["-c", "/dev/null", "--rootdir", ".", "--noconftest"]
    if session.options.device != "cuda" or "pytest" in lacking or not files:
        reason = "they need CUDA" if session.options.device != "cuda" else f"no {', '.join(lacking)} here"
        session.add("tests", f"tests marked gpu: skipped, {reason}", skipped=reason)
        return
    limit = session.left * TESTS_SHARE
    try:
        done = subprocess.run(
            [*command, *files], capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL
        )
        status, output = done.returncode, (done.stdout.strip() or done.stderr.strip()).splitlines()[-20:]
    except subprocess.TimeoutExpired:
        status, output = -1, [f"not done within {limit:.0f} s"]
    line = f"tests marked gpu: {output[-1] if output else 'no output'}"
    session.add("tests", line, status=status, output=output, lacking=lacking)


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def run_checks(session: Session) -> None:
    """The checks of exactness, one row each."""
    while session.left > 60 * session.options.minutes * CASES_SHARE:
        found = session.ask("check")
        if "done" in found:
            return
        if "error" in found:
            session.add("check", f"checks broken off: {found['error']}", passed=False, **found)
            return
        if "skipped" in found:
            outcome = f"skipped: {found['skipped']}"
        else:
            outcome = f"{'passed' if found['passed'] else 'FAILED'}, {found['error_of_it']:.1e}"
        session.add("check", f"{found['check']}: {outcome}", **found)
    session.left_out.append("checks of exactness")


def run_case(session: Session, case: Case, rate: float) -> None:
    """A row, if the time suffices for as long as the longest of its kind took."""
    if session.left < max(LEAST_SECONDS, session.longest.get(case.mode, 0)):
        session.left_out.append(case.name)
        return
    started = time.monotonic()
    histogram = session.options.histogram
    found = session.ask(
        "case",
        deterministic=case.deterministic,
        case=asdict(case),
        histogram=str(histogram.resolve()) if histogram else None,
        rate=rate,
    )
    took = time.monotonic() - started
    if "error" in found:
        if found["error"] == "the time is over":
            session.left_out.append(case.name)
        else:
            session.add("case", f"{case.name}: failed: {found['error']}", case=asdict(case), **found)
        return
    session.longest[case.mode] = max(took, session.longest.get(case.mode, 0))
    found |= {"loss_agrees": _loss_agrees(session, case, found), "took_seconds": took}
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
    return (
        f"{case.name:48} {found['tokens']:6} slots {found['tokens_per_second']:12,.0f} tokens/s"
        f"  MFU {100 * found['model_flops_utilisation']:5.1f} %  {found.get('peak_gib', 0):5.1f} GiB"
        f"  % of time: {shares}{notes}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Tests, checks, rate, cases, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="a folder for rows.jsonl and gpu.json")
    parser.add_argument("--minutes", type=float, default=8.0, help="never more than that")
    parser.add_argument("--device", help="cuda, or cpu: toy sizes; with --predict h100, a100, l40s or t4")
    parser.add_argument("--predict", action="store_true", help="from a data sheet; no GPU is needed")
    parser.add_argument("--python", help="of --predict: one with a CUDA build of torch")
    parser.add_argument("--threads", type=int, help="of the CPU; torch's default without it")
    parser.add_argument(
        "--histogram", type=Path, help='JSON {"counts": [...]}: sequences of length 1, 2, ...'
    )
    options = parser.parse_args(arguments)
    if options.predict:
        if options.python:
            os.environ["BRIMFUL_CUDA_PYTHON"] = options.python
        predict.run(options.out, options.device or "h100", options.histogram)
        return
    options.device = options.device or "cuda"
    if options.device not in ("cuda", "cpu"):
        sys.exit(
            f"bench: --device is {options.device!r}: cuda or cpu (or --predict for a GPU that is not here)"
        )
    session = Session(options)
    try:
        session.start()
    except (WorkerError, TimeoutError) as error:
        sys.exit(f"bench: no worker: {error}")
    if session.facts["device"] is None:
        session.stop()
        sys.exit("bench: torch sees no CUDA device here; --device cpu tries the logic at toy sizes")
    print(
        f"{session.facts['device']}, torch {session.facts['torch']}, {options.minutes:g} minutes", flush=True
    )
    try:
        run_tests(session)
        run_checks(session)
        rate = session.ask("rate")
        if "error" in rate:
            sys.exit(f"bench: the matrix rate could not be measured: {rate['error']}")
        teraflops = rate["flops_per_second"] / 1e12
        session.add("rate", f"large bf16 matrix products: {teraflops:.1f} Tflop/s", **rate)
        for case in CASES if options.device == "cuda" else TOY_CASES:
            if case.side == "padded" and not session.facts["transformers"]:
                reason = "transformers is not importable"
                session.add("case", f"{case.name}: skipped, {reason}", case=asdict(case), skipped=reason)
            else:
                run_case(session, case, rate["flops_per_second"])
    finally:
        session.stop()
        session.write()
    if session.left_out:
        print(f"left out, for want of time: {'; '.join(session.left_out)}")


if __name__ == "__main__":
    main()
