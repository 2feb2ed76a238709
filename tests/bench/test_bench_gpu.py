"""What measures a GPU, without one: which packages it needs, and what fits into its minutes."""

import json
import os
from importlib.metadata import packages_distributions

import pytest

from bench.gpu.cases import TOY_CASES
from builders.bench import ROOT, bench

ALLOWED = "torch functorch torchgen numpy safetensors tokenizers yaml _yaml brimful"
TORCH_NEEDS = """
filelock typing_extensions setuptools sympy mpmath networkx jinja2 fsspec markupsafe triton pkg_resources
_distutils_hack isympy
"""


def blocked_packages() -> list[str]:
    return sorted(set(packages_distributions()) - set(f"{ALLOWED} {TORCH_NEEDS}".split()))


@pytest.mark.slow
def test_bench_gpu_needs_five_packages(tmp_path):
    """Every other third-party package is as if it were not installed, in all of its processes."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        f"blocked, find = set({blocked_packages()!r}), PathFinder.find_spec\n"
        "def find_spec(name, path=None, target=None):\n"
        "    return None if name.partition('.')[0] in blocked else find(name, path, target)\n"
        "PathFinder.find_spec = find_spec\n"
    )
    assert {"rich", "numba", "msgspec", "transformers", "pytest", "scipy"} <= set(blocked_packages())
    path = f"{hook}{os.pathsep}{ROOT}"
    out = tmp_path / "found"
    arguments = ["--out", str(out), "--device", "cpu", "--threads", "1", "--minutes", "9"]
    bench("bench.gpu", *arguments, PYTHONPATH=path)
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    record = json.loads((out / "gpu.json").read_text())
    assert record["rows"] == rows
    assert record["left_out"] == []
    cases = rows[1:]
    assert [row["row"] for row in rows] == ["rate"] + ["case"] * len(TOY_CASES)
    (skipped,) = (case for case in cases if "skipped" in case)
    (failed,) = (case for case in cases if "error" in case)
    assert (skipped["skipped"], skipped["case"]["side"]) == ("transformers is not importable", "padded")
    assert failed["case"]["backend"] == "flex"
    assert "needs a CUDA device" in failed["error"]
    measured = [case for case in cases if case is not skipped and case is not failed]
    assert len(measured) == len(TOY_CASES) - 2
    for case in measured:
        shares = [case[f"share_{kind}"] for kind in ("matrix", "attention", "other", "gaps")]
        assert min(shares[:3]) > 0
        assert case["loss_agrees"]
        assert case["tokens_per_second"] == pytest.approx(case["real_tokens"] / case["seconds"])
    assert [case["bit_equal"] for case in measured if case["case"]["deterministic"]] == [True]
