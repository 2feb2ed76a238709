"""A task model in each format of `brimful export` on this CPU: texts a second, the time of one, megabytes,
and the metric of the run's test table before and after, as the gate measures it.

Tokenization counts. Texts are those of the test table, with others of similar length in a batch. Each format
has a process of its own, and they take turns. OpenVINO computes in its default, in bf16 where it can.

    python -m bench.infer.exports RUN [--formats ...] [--rounds 5] [--texts 1000] [--out FILE.json]
"""

import argparse
import statistics
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.common.turns import Worker
from brimful.base.config import read_yaml
from brimful.base.errors import BrimfulError
from brimful.commands.export import export
from brimful.exporting.formats import FORMATS, GraphFormat
from brimful.exporting.gate import described_instructions
from brimful.hf.model_folder import ModelFolder

GRAPHS = [name for name, form in FORMATS.items() if isinstance(form, GraphFormat)]


def write(
    formats: list[str], run: Path, test: str, scratch: Path, most_loss: float
) -> dict[str, dict[str, Any]]:
    """Each format that can be exported, and what is known of it: `mb` without the tokenizer, and `gate`."""
    facts: dict[str, dict[str, Any]] = {}
    for name in formats:
        try:
            found = export(run=str(run), out=str(scratch / name), format=name, test=test, most_loss=most_loss)
        except BrimfulError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            facts[name] = {"skipped": str(error)}
            continue
        size = sum(path.stat().st_size for path in (scratch / name / FORMATS[name].file).parent.iterdir())
        facts[name] = {"mb": size / 1e6, "gate": found["gate"]}
    return facts


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--formats", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--test", help="test table, for a run that names none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--most-loss", type=float, default=1.0, help="by default what loses is timed too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    folder = ModelFolder.open(options.run, "model")
    values = read_yaml(folder.path.parent / "config.yaml")
    test = options.test or values["test"]
    if test is None:
        parser.error(f"{options.run} names no test table (a student's run does not); give --test")
    given = {"run": str(options.run), "test": test, "texts": options.texts}
    facts: dict[str, dict[str, Any]] = {
        "brimful": {"mb": (folder.path / "model.safetensors").stat().st_size / 1e6}
    }
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        facts |= write(options.formats, options.run, given["test"], scratch, options.most_loss)
        workers: dict[str, Worker] = {}
        for name in facts:
            if "skipped" not in facts[name]:
                workers[name] = stack.enter_context(Worker("bench.infer.exported"))
                given["texts"] = workers[name].ask("setup", format=name, scratch=str(scratch), **given)[
                    "texts"
                ]
        about = {
            "bench": "infer.exports",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine_facts(),
            "instructions": described_instructions(),
            "torch": torch.__version__,
            "run": options.run.name,
            "texts": given["texts"],
        }
        record = Record(about, options.out)
        seconds: dict[str, list[float]] = {name: [] for name in workers}
        singles: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(options.rounds):
            for name, worker in workers.items():
                answer = worker.ask("turn")
                seconds[name].append(answer["seconds"])
                singles[name].append(answer["p50_ms"])
    print(f"{'':14} texts/s (least-most)    p50 ms      MB   metric   difference")
    for name, known in facts.items():
        row: dict[str, Any] = {"format": name, **known}
        if name in workers:
            row["all_seconds"], row["all_p50_ms"] = seconds[name], singles[name]
            row["texts_per_second"] = given["texts"] / statistics.median(seconds[name])
            row["p50_ms"] = statistics.median(singles[name])
            print(_line(name, row, given["texts"]), flush=True)
        record.add(row)


def _line(name: str, row: dict[str, Any], texts: int) -> str:
    rates = [texts / each for each in row["all_seconds"]]
    speed = f"{row['texts_per_second']:7.0f} {f'({min(rates):.0f}-{max(rates):.0f})':16}"
    line = f"{name:14} {speed} {row['p50_ms']:7.2f} {row['mb']:7.1f}"
    if gate := row.get("gate"):
        difference = f"{gate['after'] - gate['before']:+.4f} ± {gate['standard_error']:.4f}"
        line += f" {gate['after']:8.4f}   {difference}"
    return line


if __name__ == "__main__":
    main()
