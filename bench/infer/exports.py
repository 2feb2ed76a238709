"""How large, how exact and how fast is each format of `brimful export`?

    python -m bench.infer.exports MODEL=RUN=TABLE ... --out FILE.json

Each run is exported in each format, and the gate of the export compares it with the run on the labelled
table. Speeds are the gate's: texts a second, and the median of single texts, from text to output.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.common.processes import machine_facts, timed
from brimful.base.storage import write_json

FORMATS = ("hf", "onnx", "onnx-int8", "int8")


def export_run(model: str, run: str, table: str, form: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        words = ["export", run, "--out", f"{folder}/model", "--format", form, "--test", table, "--json"]
        facts = timed([sys.executable, "-m", "brimful", *words], os.sched_getaffinity(0)).facts
    return {"model": model, "format": form, "mb": facts["bytes"] / 1e6, "gate": facts["gate"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL=RUN=TABLE")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    rows = [export_run(*model.split("="), form) for model in args.models for form in FORMATS]
    facts = machine_facts("brimful/exporting", "brimful/hf", "brimful/model", "brimful/kernels")
    write_json(args.out, {**facts, "bench": "infer.exports", "rows": rows})


if __name__ == "__main__":
    main()
