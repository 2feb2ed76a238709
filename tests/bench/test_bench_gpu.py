"""What measures a GPU, without one: which packages it needs, and what fits into its minutes."""

import json
import os
from importlib.metadata import packages_distributions
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.gpu import __main__ as gpu
from bench.gpu.cases import CASES, TOY_CASES
from bench.gpu.kernels import kind_of
from bench.gpu.step import row_lengths
from builders.bench import ROOT, bench

ALLOWED = {"torch", "functorch", "torchgen", "numpy", "safetensors", "tokenizers", "yaml", "_yaml", "brimful"}
TORCH_NEEDS = {
    "filelock",
    "typing_extensions",
    "setuptools",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "fsspec",
}
TORCH_NEEDS |= {"markupsafe", "triton", "pkg_resources", "_distutils_hack", "isympy"}


def test_a_row_for_a_gpu_is_nearly_full():
    lengths = row_lengths(4096, 128)
    assert 4096 - 128 < sum(lengths) <= 4096
    assert max(lengths) <= 128


def test_kinds_of_kernels():
    assert kind_of("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT") == "matrix"
    assert kind_of("void cutlass::device_kernel<flash::FlashAttnFwdSm90<...>>") == "attention"
    assert kind_of("triton_tem_fused_flex_attention_0") == "attention"
    assert kind_of("triton_per_fused_native_layer_norm_3") == "other"


def blocked_packages() -> list[str]:
    return sorted(set(packages_distributions()) - ALLOWED - TORCH_NEEDS)


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
    done = bench("bench.gpu", *arguments, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    record = json.loads((out / "gpu.json").read_text())
    assert record["rows"] == rows
    assert record["left_out"] == []
    kinds = [row["row"] for row in rows]
    assert kinds == ["rate"] + ["case"] * len(TOY_CASES)
    cases: list[dict[str, Any]] = [row for row in rows if row["row"] == "case"]
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


@pytest.mark.slow
def test_only_the_steps_of_these_names_are_measured(tmp_path):
    arguments = ["--out", str(tmp_path / "found"), "--device", "cpu", "--threads", "1"]
    for pattern, message in [("huge", "no step is named like 'huge'"), ("(", "no regular expression")]:
        done = bench("bench.gpu", *arguments, "--cases", pattern)
        assert done.returncode != 0
        assert message in done.stderr
    done = bench("bench.gpu", *arguments, "--cases", "bert .* brimful")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "found" / "gpu.json").read_text())
    assert record["cases"] == "bert .* brimful"
    assert [row.get("name", row["row"]) for row in record["rows"]] == [
        "rate",
        "tiny bert @128 T=256 brimful eager",
    ]


class SlowWorker:
    """A device on which a case takes 90 seconds of a clock; a command fails when its time is over."""

    now = 0.0

    def __init__(self, module: str, environment: dict[str, str] | None = None) -> None:
        self.environment = environment or {}

    def __enter__(self) -> "SlowWorker":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, command: str, *, seconds: float, **values: Any) -> dict[str, Any]:
        took = 90.0 if command == "measure" else 0.5
        SlowWorker.now += min(took, seconds)
        if took > seconds:
            raise TimeoutError
        if command == "measure":
            case = values["case"]
            assert ("CUBLAS_WORKSPACE_CONFIG" in self.environment) == case["deterministic"]
            shares = {f"share_{kind}": 0.25 for kind in ("matrix", "attention", "other", "gaps")}
            speed = {
                "tokens_per_second": 1.0,
                "share_of_matrix_rate": 0.5,
                "model_flops_utilisation": 0.4,
                "loss": 3.0,
            }
            return {"tokens": case["tokens"], **shares, **speed}
        return {
            "start": {"device": "slow", "torch": "2", "transformers": False, "memory_gib": 100.0},
            "rate": {"flops_per_second": 1e12},
        }[command]


@pytest.fixture
def slow_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowWorker, "now", 0.0)
    monkeypatch.setattr(gpu, "Worker", SlowWorker)
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: SlowWorker.now))


def test_bench_gpu_keeps_within_its_minutes(slow_device, tmp_path, capsys):
    gpu.main(["--out", str(tmp_path), "--minutes", "8"])
    assert SlowWorker.now <= 480
    record = json.loads((tmp_path / "gpu.json").read_text())
    named = [case.name for case in CASES]
    cases = [row for row in record["rows"] if row["row"] == "case"]
    measured = [row["name"] for row in cases if "loss" in row]
    # Five fit. Then it is known that a case takes too long.
    assert measured == [case.name for case in CASES if case.side == "brimful"][:5]
    skipped = [case.name for case in CASES if case.side == "padded"]
    assert sorted(measured + skipped + record["left_out"]) == sorted(named)
    assert record["left_out"][0] in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_gpu_bench_gpu_says_so(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    done = bench("bench.gpu", "--out", str(tmp_path))
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        == "bench: torch sees no CUDA device here; --device cpu tries the logic at toy sizes"
    )
