"""The time of a recorded training step (bench/gpu/recording.py) on a GPU that is not here, by its data sheet.

Nothing is measured. Each kernel takes the longer of its arithmetic and its traffic, one kernel after another,
and the sum is given twice: ideal (the data sheet's rates, free launches), which is a bound, and derated by
`Assumptions`, which is a guess and perhaps 30 % off. Model flops and their utilisation are as in bench/gpu.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts
from bench.common.recorder import device as recorder
from bench.gpu.cases import BASE, BERT, LARGE, THIRTY, Case
from brimful.estimates.rates import visited
from brimful.train.data_sheets import BF16_SINCE, Sheet, find_sheet

Kernel = dict[str, Any]

HEADING = "predicted, not measured"
UNCERTAINTY = 0.3  # of a derated time; nobody has compared it with a GPU yet

THIRTY_BERT, LARGE_BERT = (replace(case, architecture="bert") for case in (THIRTY, LARGE))
CASES: tuple[Case, ...] = (
    THIRTY_BERT,
    BERT,
    LARGE_BERT,
    THIRTY,
    BASE,
    LARGE,
    replace(THIRTY_BERT, side="padded"),
    replace(BERT, side="padded"),
    replace(LARGE_BERT, side="padded"),
    replace(BERT, residual="fp32"),
    replace(BASE, residual="fp32"),
)


SHEETS: dict[str, Sheet] = {name: find_sheet(name) for name in ("h100", "a100", "l40s", "t4")}


@dataclass(frozen=True)
class Assumptions:
    """What is guessed; `MEANING` says it for a reader."""

    product_share: float = 0.75
    tiles: tuple[tuple[int, int], ...] = ((128, 256), (256, 128), (128, 128))
    least_k: int = 512
    odd_stride: float = 3.0
    bandwidth_share: float = 0.9
    attention_forward: float = 330 / 989
    attention_backward: float = 260 / 989
    empty_block_seconds: float = 0.5e-6
    resident_blocks: int = 2
    launch_seconds: float = 2e-6


ASSUMED = Assumptions()
MEANING = {
    "product_share": "of the peak in a matrix product whose tiles fill all SMs",
    "tiles": "of a product, the best of these, in whole waves over the SMs",
    "least_k": "a product is split along k where that is faster, into parts at least that long; partial sums"
    " in float32 are written and read",
    "odd_stride": "times as long if a leading dimension of a 16-bit product is no multiple of 8",
    "bandwidth_share": "of the memory's bandwidth, in all other kernels",
    "attention_forward": "of the peak, over whole tiles that fused attention visits (330 Tflop/s on H100)",
    "attention_backward": "the same, backward (260 Tflop/s on H100)",
    "empty_block_seconds": "a block of fused attention that finds no tokens holds its place that long",
    "resident_blocks": "such places on an SM",
    "launch_seconds": "for each kernel, in CUDA graphs too; nothing overlaps it",
}

PARTS = {
    "products": "GEMM",
    "odd_strides": "odd strides",
    "elementwise": "elementwise",
    "attention": "attention",
    "empty_blocks": "empty blocks",
    "cross_entropy": "cross-entropy",
    "optimizer": "AdamW",
    "launches": "launches",
}
"""The parts of a step's time. Products hold the decoder's; the cross-entropy is what lies beside them."""

TYPES_16 = (2, 14)  # cudaDataType: float16, bfloat16
BYTES = {0: 4, 1: 8, 2: 2, 14: 2}
FLEX_BLOCK = 128


def sheet(name: str) -> Sheet:
    """A data sheet by its short name; else the process ends with a line that says which there are."""
    if name not in SHEETS:
        sys.exit(f"bench: no data sheet of {name!r}: --predict knows {', '.join(SHEETS)}")
    return SHEETS[name]


def product_seconds(
    kernel: Kernel, device: Sheet, assumed: Assumptions = ASSUMED
) -> tuple[float, float, float]:
    """Seconds of a matrix product: ideal, derated, and what an odd stride adds to the latter."""
    m, n, k, batch = (kernel[size] for size in ("m", "n", "k", "batch"))
    half = kernel["type"] in TYPES_16
    peak = device.flops if half else device.flops_32 or device.flops / 16
    size = BYTES.get(kernel["type"], 4)
    moved = kernel["bytes"] or batch * size * (m * k + k * n + m * n)
    ideal = max(2 * m * n * k * batch / peak, moved / device.bandwidth)
    each = assumed.product_share * peak / device.processors
    bandwidth = assumed.bandwidth_share * device.bandwidth
    choices = []
    for rows, columns in assumed.tiles:
        tiles = -(-m // rows) * -(-n // columns) * batch
        for parts in range(1, max(1, min(64, k // assumed.least_k)) + 1):
            waves = -(-tiles * parts // device.processors)
            sums = 2 * parts * m * n * batch * 4 * (parts > 1) / bandwidth
            choices.append((waves * 2 * rows * columns * (k / parts) / each, sums))
    compute, sums = min(choices, key=sum)
    derated = max(compute, moved / bandwidth) + sums
    odd = half and any(kernel[stride] % 8 for stride in ("lda", "ldb", "ldc"))
    slower = max(assumed.odd_stride * compute, moved / bandwidth) + sums if odd else derated
    return ideal, derated, slower - derated


def visited_flat(lengths: Sequence[int], reach: int | None, block: int = FLEX_BLOCK) -> int:
    """Blocks of the whole row's pairs in which any pair is visible (FlexAttention), for one head."""
    blocks, start = set(), 0
    for length in lengths:
        for i in range(start // block, -(-(start + length) // block)):
            first = start if reach is None else max(start, i * block - reach)
            last = start + length if reach is None else min(start + length, (i + 1) * block + reach)
            blocks |= {(i, j) for j in range(first // block, -(-last // block))}
        start += length
    return len(blocks)


def _attention_work(
    kernel: Kernel, record: dict[str, Any], heads: int, head_dim: int
) -> tuple[float, bool, int]:
    """Flops, whether it is backward, and bytes beside them, of a kernel of fused attention."""
    facts, name = kernel["attention"], kernel["name"]
    lengths = record["lengths"]
    if facts and "batch" in facts:  # of padded rows: all pairs, in one kernel forward and one backward
        pairs = facts["batch"] * facts["length"] * facts["key_length"] * ("fmha" in name)
        each = facts["heads"] * facts["head_dim"] * (10 if facts["backward"] else 4)
        return pairs * each, facts["backward"], 0
    if "flex_attention" in name:
        pairs = sum(visited_flat(lengths, reach) for reach in record["reaches"]) / len(record["reaches"])
        backward = "backward" in name  # which computes scores and their gradients twice
        return pairs * FLEX_BLOCK**2 * heads * head_dim * (14 if backward else 4), backward, 0
    entries = facts["length"] * facts["heads"] * facts["head_dim"] if facts else 0
    if "dot_do_o" in name:  # reads the output and its gradient, clears the sum of the gradient of q
        return 0, True, entries * (2 + 2 + 4)
    if "convert_dq" in name:
        return 0, True, entries * (4 + 2)
    if "tile" not in kernel:
        return 0, False, kernel["bytes"]
    rows, columns = kernel["tile"]
    pairs = visited(lengths, facts["reach"], rows, columns) * rows * columns
    return pairs * facts["heads"] * facts["head_dim"] * (10 if facts["backward"] else 4), facts["backward"], 0


def attention_seconds(
    kernel: Kernel, record: dict[str, Any], device: Sheet, assumed: Assumptions = ASSUMED
) -> tuple[float, float, float]:
    """Seconds of a kernel of fused attention: ideal, derated, and what empty blocks add to the latter."""
    flops, backward, moved = _attention_work(kernel, record, *record["heads"])
    share = assumed.attention_backward if backward else assumed.attention_forward
    ideal = flops / device.flops + moved / device.bandwidth
    derated = flops / (share * device.flops) + moved / (assumed.bandwidth_share * device.bandwidth)
    empty = 0
    if "tile" in kernel and kernel["attention"]:
        x, y, z = kernel["grid"]
        rows = kernel["tile"][1 if "seqk" in kernel["name"] else 0]
        needed = sum(-(-length // rows) for length in record["lengths"]) * kernel["attention"]["heads"]
        empty = max(0, x * y * z - needed)
    places = device.processors * assumed.resident_blocks
    return ideal, derated, empty * assumed.empty_block_seconds / places


def predict(record: dict[str, Any], device: Sheet, assumed: Assumptions = ASSUMED) -> dict[str, Any]:
    """Milliseconds by part, utilisation, tokens a second and memory of one recorded case."""
    ideal, derated = (dict.fromkeys(PARTS, 0.0) for _ in range(2))
    for kernel in record["kernels"]:
        count, part = kernel["count"], kernel["part"]
        derated["launches"] += 1e3 * count * assumed.launch_seconds
        if part == "gemm":
            least, likely, odd = product_seconds(kernel, device, assumed)
            name, extra, more = "products", "odd_strides", odd
        elif part == "attention":
            least, likely, more = attention_seconds(kernel, record, device, assumed)
            name, extra = "attention", "empty_blocks"
        else:
            least = kernel["bytes"] / device.bandwidth
            likely, more, extra = least / assumed.bandwidth_share, 0.0, "launches"
            name = part if part in PARTS else "elementwise"
        ideal[name] += 1e3 * count * least
        derated[name] += 1e3 * count * likely
        derated[extra] += 1e3 * count * more
    kinds = {kind: [k for k in record["kernels"] if k["part"] == kind] for kind in ("generated", "gemm")}
    kernels = {kind: sum(k["count"] for k in found) for kind, found in kinds.items()}
    kernels["other"] = sum(k["count"] for k in record["kernels"]) - sum(kernels.values())
    return {
        "name": record["name"],
        "case": record["case"],
        "tokens": record["tokens"],
        "real_tokens": record["real_tokens"],
        "sequences": record["lengths"] and len(record["lengths"]),
        "sequence_slots": record["sequence_slots"],
        "model_flops": record["model_flops"],
        "kernels": kernels,
        "generated_gigabytes": sum(k["count"] * k["bytes"] for k in kinds["generated"]) / 1e9,
        "peak_gib": record["peak_bytes"] / 2**30,
        "fits": record["peak_bytes"] / 2**30 < device.gib,
        "ideal": _figures(record, device, ideal),
        "derated": _figures(record, device, derated),
    }


def _figures(record: dict[str, Any], device: Sheet, parts: dict[str, float]) -> dict[str, Any]:
    seconds = sum(parts.values()) / 1e3
    return {
        "milliseconds": 1e3 * seconds,
        "parts": parts,
        "model_flops_utilisation": record["model_flops"] / seconds / device.flops,
        "tokens_per_second": record["real_tokens"] / seconds,
    }


def add_ratios(cases: Sequence[dict[str, Any]]) -> None:
    """Give each packed case that has a padded peer of as many slots its tokens a second over the peer's."""
    keys = ("model", "architecture", "length", "mode")
    for case in cases:
        for peer in cases:
            same = all(case["case"][key] == peer["case"][key] for key in keys)
            sides = case["case"]["side"], peer["case"]["side"]
            if same and sides == ("brimful", "padded") and case["tokens"] == peer["tokens"]:
                for kind in ("ideal", "derated"):
                    faster = case[kind]["tokens_per_second"] / peer[kind]["tokens_per_second"]
                    case[kind]["over_padded"] = faster


def table(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown lines: a row for each case."""
    columns = ["case", "MFU ideal", "derated", "real tokens/s", "over padded", "GiB", "ms", *PARTS.values()]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for case in cases:
        derated = case["derated"]
        ratio = f"{derated['over_padded']:.2f}" if "over_padded" in derated else ""
        parts = [f"{derated['parts'][part]:.1f}" for part in PARTS]
        cells = [
            case["name"],
            f"{100 * case['ideal']['model_flops_utilisation']:.1f} %",
            f"{100 * derated['model_flops_utilisation']:.1f} %",
            f"{derated['tokens_per_second']:,.0f}",
            ratio,
            f"{case['peak_gib']:.1f}",
            f"{derated['milliseconds']:.1f}",
            *parts,
        ]
        yield f"| {' | '.join(cells)} |"


def record_on_device(
    case: Case, device: Sheet, folder: Path, out: Path, histogram: Path | None
) -> str | None:
    """Record a case in a process of its own; the last line of its error if it failed.

    Args:
        folder: of the recording device.
        out: the file for the record.
    """
    asked = {"case": asdict(case), "histogram": str(histogram.resolve()) if histogram else None}
    command = [str(recorder.python()), "-m", "bench.gpu.recording", json.dumps(asked), str(out)]
    environment = recorder.environment(folder, gib=device.gib, capability=device.capability)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode == 0 and out.exists():
        return None
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]


def run(out: Path, name: str, histogram: Path | None) -> None:
    """Record and predict all cases; DIR/predicted_NAME.json and a table on the terminal."""
    device = sheet(name)
    lacking = recorder.lacks()
    if lacking:
        sys.exit(f"bench: --predict needs {lacking}")
    out.mkdir(parents=True, exist_ok=True)
    print(f"{device.name}: {HEADING}", flush=True)
    commit = machine_facts()["commit"]
    cases, versions, failed = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        built = recorder.build(Path(folder))
        for case in CASES:
            if case.residual == "fp32" and device.capability < BF16_SINCE:
                continue  # its other cases are in float32 too
            file = out.resolve() / f"record_{case.name.replace(' ', '_')}.json"
            file.unlink(missing_ok=True)
            error = record_on_device(case, device, built, file, histogram)
            if error:
                failed[case.name] = error
                print(f"{case.name}: not recorded: {error}", flush=True)
                continue
            record = json.loads(file.read_text(encoding="utf-8"))
            versions |= {key: record[key] for key in ("torch", "triton", "transformers") if key in record}
            cases.append(predict(record, device))
            print(f"{case.name}: {cases[-1]['derated']['milliseconds']:.0f} ms", flush=True)
    add_ratios(cases)
    facts = {
        "bench": "gpu",
        "what": HEADING,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "versions": versions,
        "device": asdict(device),
        "assumptions": {key: {"value": v, "meaning": MEANING[key]} for key, v in asdict(ASSUMED).items()},
        "uncertainty": UNCERTAINTY,
        "cases": cases,
        "failed": failed,
    }
    (out / f"predicted_{name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(f"\n{device.name}: {HEADING}\n", *table(cases), sep="\n")
