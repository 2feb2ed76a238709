"""What measures a GPU, without one: which packages it needs, and what fits into its minutes."""

import json
import os
from importlib.metadata import packages_distributions

import pytest

from bench.common.workload import make_sequences, packed
from bench.gpu.cases import TOY_CASES
from bench.gpu.pretraining import pad
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
    arguments = ["--out", str(out), "--device", "cpu", "--minutes", "9"]
    bench("bench.gpu", *arguments, PYTHONPATH=path, OMP_NUM_THREADS="1")
    record = json.loads((out / "gpu.json").read_text())
    rows = record["rows"]
    assert record["left_out"] == []
    cases = rows[1:]
    assert [row["row"] for row in rows] == ["rate"] + ["case"] * len(TOY_CASES)
    skipped = [case for case in cases if "skipped" in case]
    (failed,) = (case for case in cases if "error" in case)
    assert {case["skipped"] for case in skipped} == {"transformers is not importable"}
    assert [case["case"]["side"] for case in skipped] == ["padded", "careful", "unpadded"]
    assert failed["case"]["backend"] == "flex"
    assert "needs a CUDA device" in failed["error"]
    measured = [case for case in cases if case not in (*skipped, failed)]
    assert len(measured) == len(TOY_CASES) - 4
    for case in measured:
        shares = [case[f"share_{kind}"] for kind in ("matrix", "attention", "other", "gaps")]
        assert min(shares[:3]) > 0
        assert case["tokens_per_second"] == pytest.approx(case["real_tokens"] / case["seconds"])
    assert [case["bit_equal"] for case in measured if case["case"]["deterministic"]] == [True]


def test_padded_batches_hold_the_sequences_and_labels_of_a_row(seed):
    sequences = make_sequences([5, 60, 1, 17, 60], 700, seed)
    found = []
    for batch, tokens in pad(packed(sequences, 64, 160, 8), 70):
        rows = zip(batch["input_ids"], batch["labels"], batch["attention_mask"].bool(), strict=True)
        found += [(ids[real].tolist(), labels[real].tolist()) for ids, labels, real in rows]
        assert tokens == int(batch["attention_mask"].sum())
    wanted = [(a.tolist(), b.tolist()) for a, b in zip(sequences.tokens, sequences.labels, strict=True)]
    assert sorted(found) == sorted(wanted)


@pytest.mark.slow
def test_ten_minutes_run_and_are_not_made_again(tmp_path):
    paths = ["--out", str(tmp_path), "--corpus", str(ROOT / "tests/data/old/corpus"), "--data", str(tmp_path)]
    arguments = ["--device", "cpu", "--seconds", "3", "--steps", "brimful", "transformers", "tasks"]
    bench("bench.gpu.ten_minutes", *paths, *arguments)
    record = json.loads((tmp_path / "ten_minutes.json").read_text())
    rows = {row["name"]: row for row in record["rows"]}
    for side in ("brimful", "transformers"):
        seconds, tokens, loss = rows[side]["said"]["points"][-1]
        assert (seconds > 3, tokens > 1000, 3 < loss < 5.5) == (True, True, True)
        assert (tmp_path / side / "encoder/tokenizer.json").is_file()
    assert "mrpc" in rows["mrpc-brimful"]["error"]  # there are no tables
    assert "brimful: done" not in bench("bench.gpu.ten_minutes", *paths, *arguments)
