"""What each part of Brimful's packed forward passes takes, and the least that this machine would need for it.

The operations of torch are told apart by name and place: products come four to a layer. The rest of the time
is Python's and that of numba's loops, which are the norms and the rounding of bf16 and int8.
"""

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from bench.common.reference import copy_rate, matmul_rate
from brimful import Encoder
from brimful.data.examples import encode_texts
from brimful.model.inference import text_vectors

PRODUCTS = ("aten::linear", "mkldnn::_linear_pointwise", "onednn::qlinear_pointwise")
OF_LAYER = ("qkv, output", "qkv, output", "MLP, GeLU", "MLP, GeLU")


def measured(encoder: Encoder, texts: list[str], precision: Any) -> list[dict[str, Any]]:
    """A row for each part: its seconds, their share, and the seconds of its floor (None: it has none).

    The floor is its flops at the rate of a large matrix product, or its bytes at that of a large copy,
    whichever takes longer. That of int8 is by the faster of float32's products and bfloat16's.
    """
    assert encoder.tokenizer is not None
    shape = encoder.config
    started = time.perf_counter()
    examples = encode_texts(encoder.tokenizer, texts, max_length=shape.max_length, pad=shape.pad_id)
    tokenized = time.perf_counter() - started
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        started = time.perf_counter()
        text_vectors(encoder, examples, precision=precision)
        whole = time.perf_counter() - started
    seconds = _by_part(profile.events() or (), 4 * shape.layers)
    seconds["loops, Python"] = whole - sum(seconds.values())
    seconds["tokenization"] = tokenized
    lengths = examples.lengths.astype(float)
    dtypes = {"fp32": [torch.float32], "bf16": [torch.bfloat16]}.get(
        precision, [torch.float32, torch.bfloat16]
    )
    rate, bytes_rate = max(map(matmul_rate, dtypes)), copy_rate()
    T, H, size = lengths.sum(), shape.hidden_size, 4 if precision == "fp32" else 2
    layer = encoder.layers[0]
    outputs = layer.attention_out.weight.numel() + layer.qkv.weight.numel()
    inner = layer.up.weight.numel() + layer.down.weight.numel()
    widths = 3 * layer.down.in_features if layer.gated else 2 * layer.down.in_features
    flops = {
        OF_LAYER[0]: 2 * T * outputs * shape.layers,
        OF_LAYER[2]: 2 * T * inner * shape.layers,
        "attention": 4 * H * (lengths**2).sum() * shape.layers,
    }
    numbers = {  # read and written, beside the weights
        OF_LAYER[0]: 6 * T * H * shape.layers,
        OF_LAYER[2]: (2 * H + widths) * T * shape.layers,
        "attention": 4 * T * H * shape.layers,
        "norms, sums": 6 * T * H * shape.layers,
        "embeddings": 2 * T * H,
        "pooling": T * H,
    }
    floors = {
        part: max(flops.get(part, 0) / rate, size * count / bytes_rate) for part, count in numbers.items()
    }
    total = whole + tokenized
    return [
        {"part": part, "seconds": each, "share": each / total, "floor_seconds": floors.get(part)}
        for part, each in seconds.items()
    ]


def _by_part(events: Iterable[Any], products: int) -> dict[str, float]:
    """Seconds of the outermost operations by part; what pools stands behind a batch's last product."""
    found: dict[str, float] = defaultdict(float)
    done = 0
    for event in sorted(events, key=lambda event: event.time_range.start):
        if event.cpu_parent is not None:
            continue
        if event.name == "aten::embedding":
            part, done = "embeddings", 0  # a batch begins
        elif event.name in PRODUCTS:
            part, done = OF_LAYER[done % 4], done + 1
        elif "attention" in event.name:
            part = "attention"
        elif event.name == "aten::gelu":
            part = OF_LAYER[2]
        elif event.name in ("aten::layer_norm", "aten::add"):
            part = "norms, sums"
        elif done == products:
            part = "pooling"
        else:
            continue
        found[part] += event.cpu_time_total / 1e6
    return dict(found)
