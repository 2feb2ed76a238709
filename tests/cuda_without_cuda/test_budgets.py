"""What a step asks of a GPU, as numbers that may only fall: budgets.json.

The record is that of bench/gpu/recording.py. The numbers hold for the versions of torch and Triton and the
device that budgets.json names; with others, this test is skipped until they are recorded again. Whoever has
a good reason for a larger number than before takes the old one out of the file first:

    BRIMFUL_WRITE_BUDGETS=1 python -m pytest -m slow tests/cuda_without_cuda/test_budgets.py
"""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.common.recorder import device

BUDGETS = Path(__file__).with_name("budgets.json")
TOKENS = 65536
CASES = {
    f"{model} {architecture} {mode}": {
        "model": model,
        "architecture": architecture,
        "length": 512,
        "tokens": TOKENS,
        "mode": mode,
    }
    for model, architecture, mode in (
        ("30m", "bert", "graphs"),
        ("30m", "modern", "graphs"),
        ("30m", "bert", "eager"),
    )
}
MOST = {"cross_entropy_bytes_a_score": 12, "cross_entropy_kernels_a_chunk": 8, "attention_grid": 1.2}
"""What no step may exceed, whatever budgets.json says; see `measured`."""


def recorded(case: dict[str, Any], recorder: Path, tmp_path: Path) -> dict[str, Any]:
    out = tmp_path / "record.json"
    asked = json.dumps({"case": case, "histogram": None})
    command = [str(device.python()), "-m", "bench.gpu.recording", asked, str(out)]
    done = subprocess.run(
        command,
        cwd=device.ROOT,
        env=device.environment(recorder),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert out.exists(), done.stderr[-2000:]
    return json.loads(out.read_text())


def measured(found: dict[str, Any]) -> dict[str, float]:
    """The numbers of budgets.json:

    - launches a step, products, copies and memsets among them;
    - bytes that the cross-entropy's kernels move for each score, products excluded, and its kernels a chunk;
    - the megabytes that all others move;
    - sequences that attention's grid visits, divided by those that there are, filler included;
    - megabytes of memory at the step's peak: parameters, gradients and AdamW's averages among them,
      rounded up to a multiple of 10, since they differ by 1 from run to run.
    """
    kernels = found["kernels"]
    scores = found["prediction_slots"] * found["vocabulary"]

    def moved(*parts: str) -> int:
        return sum(k["bytes"] * k["count"] for k in kernels if k["part"] in parts)

    return {
        "launches": sum(kernel["count"] for kernel in kernels),
        "cross_entropy_bytes_a_score": round(moved("cross_entropy") / scores, 2),
        "cross_entropy_kernels_a_chunk": found["chunk_kernels"],
        "other_megabytes": round(moved("generated", "other") / 1e6),
        "attention_grid": round(found["sequence_slots"] / len(found["lengths"]), 3),
        "peak_megabytes": 10 * math.ceil(found["peak_bytes"] / 1e7),
    }


def lowered(known: dict[str, float], numbers: dict[str, float]) -> dict[str, float]:
    """The numbers, none of which may be larger than a known one."""
    larger = {key: (known[key], number) for key, number in numbers.items() if number > known.get(key, number)}
    assert not larger, f"larger than before: {larger}"
    return numbers


def test_a_budget_does_not_grow() -> None:
    known = {"launches": 10.0, "gone": 1.0}
    assert lowered(known, {"launches": 9.0, "new": 5.0}) == {"launches": 9.0, "new": 5.0}
    with pytest.raises(AssertionError, match=r"larger than before: .*launches"):
        lowered(known, {"launches": 11.0})


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_a_step_stays_within_its_budget(name: str, recorder: Path, tmp_path: Path) -> None:
    """And every stride of a product is a multiple of 8."""
    found = recorded(CASES[name], recorder, tmp_path)
    products = [kernel for kernel in found["kernels"] if kernel["part"] == "gemm"]
    assert products
    assert not [p for p in products if any(p[key] % 8 for key in ("lda", "ldb", "ldc"))]
    grids = [kernel["grid"] for kernel in found["kernels"] if kernel["part"] == "attention"]
    assert grids
    assert all(found["sequence_slots"] in grid for grid in grids), grids
    numbers = measured(found)
    assert {key: numbers[key] for key, most in MOST.items() if numbers[key] > most} == {}
    here = {key: found[key] for key in ("torch", "triton", "device")}
    known = json.loads(BUDGETS.read_text()) if BUDGETS.exists() else here | {"cases": {}}
    if os.environ.get("BRIMFUL_WRITE_BUDGETS"):
        known["cases"][name] = lowered(known["cases"].get(name, {}), numbers)
        known |= here
        BUDGETS.write_text(json.dumps(known, indent=1) + "\n")
    if any(known[key] != value for key, value in here.items()):
        pytest.skip(f"the budgets hold for {known['torch']} and Triton {known['triton']}, not {here}")
    for key, most in known["cases"][name].items():
        assert numbers[key] <= most, key
