"""The prediction of a GPU's step from a record: its arithmetic, on products and on a small recorded step."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.gpu import __main__ as gpu
from bench.gpu import predict
from bench.gpu.predict import ASSUMED, PARTS, SHEETS, product_seconds, visited, visited_flat
from bench.gpu.recording import Watching, chunk_kernels, moved

H100 = SHEETS["h100"]


@pytest.fixture
def record():
    """A step of tiny modern at 8,192 slots of 128, as bench.gpu.recording wrote it with torch 2.13."""
    return json.loads((Path(__file__).with_name("gpu_record.json")).read_text(encoding="utf-8"))


def product(m: int, n: int, k: int, **changes: int) -> dict[str, int]:
    """A row-major product of bf16 matrices."""
    strides = {"lda": k, "ldb": k, "ldc": m}
    return {"m": m, "n": n, "k": k, "batch": 1, "type": 14, "bytes": 0} | strides | changes


# Products


def test_a_product_takes_whole_waves():
    _, full, _ = product_seconds(product(11 * 128, 12 * 128, 1016), H100)
    flops = 2 * 11 * 128 * 12 * 128 * 1016
    assert full == pytest.approx(flops / (0.75 * H100.flops), rel=1e-9)  # 132 tiles for 132 SMs
    _, more, _ = product_seconds(product(11 * 128 + 8, 12 * 128, 1016), H100)
    assert more == pytest.approx(2 * full, rel=1e-9)


def test_a_small_output_with_a_long_sum_is_split():
    gradient = product(768, 768, 65536)
    _, split, _ = product_seconds(gradient, H100)
    ideal, whole, _ = product_seconds(gradient, H100, replace(ASSUMED, least_k=10**9))
    assert whole == pytest.approx(ideal / 0.75 * 132 / 36, rel=1e-9)  # 36 tiles leave 96 SMs idle
    assert ideal / 0.75 < split < whole / 2


@pytest.mark.parametrize("stride", ["lda", "ldb", "ldc"])
def test_an_odd_stride_costs_more(stride):
    even, odd = (product(4096, 4096, 4096, **{stride: size}) for size in (4096, 4098))
    assert product_seconds(even, H100)[2] == 0
    _, derated, more = product_seconds(odd, H100)
    assert derated + more == pytest.approx(ASSUMED.odd_stride * derated)
    assert product_seconds(odd | {"type": 0}, H100)[2] == 0  # float32


def test_a_thin_product_takes_the_time_of_its_traffic():
    ideal, derated, _ = product_seconds(product(65536, 8, 64), H100)
    size = 2 * (65536 * 64 + 64 * 8 + 65536 * 8)
    assert ideal == pytest.approx(size / H100.bandwidth)
    assert derated == pytest.approx(size / (0.9 * H100.bandwidth))


# Attention


@pytest.mark.parametrize("reach", [None, 0, 5, 64])
def test_visited_tiles_are_those_with_a_visible_pair(seed, reach):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 60, 6).tolist()
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(sequence))
    near = np.abs(place[:, None] - place) <= (len(place) if reach is None else reach)
    visible = (sequence[:, None] == sequence) & near

    def tiles(part: np.ndarray, rows: int, columns: int) -> int:
        starts = [range(0, size, step) for size, step in zip(part.shape, (rows, columns), strict=True)]
        return sum(part[i : i + rows, j : j + columns].any() for i in starts[0] for j in starts[1])

    ends = np.cumsum(lengths)
    alone = [visible[e - n : e, e - n : e] for n, e in zip(lengths, ends, strict=True)]
    assert visited(lengths, reach, 16, 8) == sum(tiles(part, 16, 8) for part in alone)
    assert visited_flat(lengths, reach, 16) == tiles(visible, 16, 16)


def test_empty_sequences_cost_blocks(record):
    def empty(slots: int) -> float:
        kernels = [
            k | {"grid": [k["grid"][0], slots, k["grid"][2]]} for k in record["kernels"] if "grid" in k
        ]
        return predict.predict(record | {"kernels": kernels}, H100)["derated"]["parts"]["empty_blocks"]

    used, launches, heads = len(record["lengths"]), 4 * 2, 2
    assert empty(used) == 0
    each = 1e3 * ASSUMED.empty_block_seconds / (H100.processors * ASSUMED.resident_blocks)
    assert empty(used + 1000) == pytest.approx(1000 * launches * heads * each)


# A whole step


@pytest.mark.parametrize("name", SHEETS)
def test_derating_only_adds(record, name):
    found = predict.predict(record, SHEETS[name])
    ideal, derated = found["ideal"], found["derated"]
    assert all(ideal["parts"][part] <= derated["parts"][part] for part in PARTS)
    assert 0 < derated["model_flops_utilisation"] < ideal["model_flops_utilisation"] < 1
    for figures in (ideal, derated):
        assert figures["milliseconds"] == pytest.approx(sum(figures["parts"].values()))
        assert figures["tokens_per_second"] == pytest.approx(
            1e3 * record["real_tokens"] / figures["milliseconds"]
        )
    kernels = sum(kernel["count"] for kernel in record["kernels"])
    assert sum(found["kernels"].values()) == kernels
    assert derated["parts"]["launches"] == pytest.approx(2e-3 * kernels)


def test_the_ratio_is_to_the_padded_peer_of_as_many_slots(record):
    def case(side: str, tokens: int, real: int) -> dict:
        changed = record | {"tokens": tokens, "real_tokens": real}
        return predict.predict(changed | {"case": record["case"] | {"side": side}}, H100)

    cases = [case("brimful", 8192, 8000), case("padded", 8192, 4000), case("brimful", 4096, 4000)]
    predict.add_ratios(cases)
    assert cases[0]["derated"]["over_padded"] == pytest.approx(2)
    assert all("over_padded" not in case["derated"] for case in cases[1:])


def test_the_command_writes_a_prediction_that_says_so(record, tmp_path, monkeypatch, capsys):
    def recorded(case, device, folder, out, histogram):
        if case.model == "large":
            return "torch.OutOfMemoryError: no"
        out.write_text(json.dumps(record | {"name": case.name, "case": asdict(case)}), encoding="utf-8")
        return None

    monkeypatch.setattr(predict.recorder, "lacks", lambda: None)
    monkeypatch.setattr(predict.recorder, "build", lambda folder: folder)
    monkeypatch.setattr(predict, "record_on_device", recorded)
    gpu.main(["--out", str(tmp_path), "--predict", "--device", "l40s"])
    assert "L40S: predicted, not measured" in capsys.readouterr().out
    found = json.loads((tmp_path / "predicted_l40s.json").read_text(encoding="utf-8"))
    assert found["what"] == "predicted, not measured"
    assert set(found["assumptions"]) == set(asdict(ASSUMED))
    assert all("large" in name for name in found["failed"])
    assert len(found["cases"]) + len(found["failed"]) == len(predict.CASES)
    assert found["cases"][0]["derated"]["over_padded"] == pytest.approx(1)


def test_a_device_without_bfloat16_has_a_float32_residual_stream_once(record, tmp_path, monkeypatch):
    def recorded(case, device, folder, out, histogram):
        out.write_text(json.dumps(record | {"name": case.name, "case": asdict(case)}), encoding="utf-8")

    monkeypatch.setattr(predict.recorder, "lacks", lambda: None)
    monkeypatch.setattr(predict.recorder, "build", lambda folder: folder)
    monkeypatch.setattr(predict, "record_on_device", recorded)
    residual = {case.name for case in predict.CASES if case.residual == "fp32"}
    assert residual
    for name, left_out in (("t4", True), ("a100", False)):
        predict.run(tmp_path, name, None)
        found = json.loads((tmp_path / f"predicted_{name}.json").read_text(encoding="utf-8"))
        assert residual.isdisjoint(case["name"] for case in found["cases"]) == left_out


@pytest.mark.parametrize("options", [["--predict", "--device", "v100"], ["--device", "h100"]])
def test_an_unknown_device_is_refused_in_one_line(tmp_path, options):
    with pytest.raises(SystemExit, match=rf"bench: .*{options[-1]}") as refused:
        gpu.main(["--out", str(tmp_path), *options])
    assert "\n" not in str(refused.value)


# Kernels of the cross-entropy


def test_kernels_a_chunk_are_those_between_its_products():
    def of(k: int) -> dict:
        return {"of_cross_entropy": True, "k": k}

    width, other = 64, {"of_cross_entropy": False, "k": 64}
    chunk = [of(width), {}, {}, of(1000), of(128)]
    before, after = [other, {}], [{}, {}, other]
    assert chunk_kernels([*before, *chunk, *after], width) == 5
    assert chunk_kernels([*before, *chunk, *chunk, {}, {}, *chunk, *after], width) == 17 / 3
    assert chunk_kernels([*before, *after], width) is None


# What operations move


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda x, y, i: x + y, 12),
        (lambda x, y, i: x.add_(y), 12),
        (lambda x, y, i: x.copy_(y), 8),
        (lambda x, y, i: x.zero_(), 4),
        (lambda x, y, i: torch.mul(x, y, out=x), 12),
        (lambda x, y, i: x.bfloat16(), 6),
        (lambda x, y, i: torch.softmax(x.detach().bfloat16(), 1, dtype=torch.float32), 6 + 6 + 8),
        (lambda x, y, i: x.add_(y[:1].expand_as(y)), 8 + 4 / 100),
        (lambda x, y, i: x.gather(1, i), (4 + 4 + 8) / 50),
        (lambda x, y, i: x.new_zeros(50), 4 / 100),
        (lambda x, y, i: x.view(-1), 0),
    ],
)
def test_bytes_an_operation_moves(operation, expected, monkeypatch):
    found = []

    def count(func, *rest):
        size = moved(func, *rest)
        views = func is torch.ops.aten.view.default or func is torch.ops.aten.detach.default
        found.append(0 if func.is_view or views else size)
        return size

    monkeypatch.setattr("bench.gpu.recording.moved", count)
    x, y = torch.randn(2, 100, 50).unbind(0)
    place = torch.zeros(100, 1, dtype=torch.int64)
    with Watching():
        operation(x, y, place)
    assert sum(found) == pytest.approx(expected * x.numel())
