"""The process of one side of bench/distil: steps of the first stage of distillation, timed or measured."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.common.reference import matmul_rate
from bench.common.turns import Answer, serve
from bench.distil import peer
from brimful import Encoder
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import round_up_tokens
from brimful.model.flops import Shape, count_step_flops
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import LayerDistillation

TEACHER, STUDENT = (12, 768, 3072), (4, 312, 1200)
"""Layers, width, feed-forward width: BERT-base, and TinyBERT's smaller student."""
HEADS, VOCABULARY = 12, 30522
CASES = {128: (32, 0.25, 65), 384: (8, 0.48, 284)}
"""Length that is padded to: texts in a batch, the real share of its slots, the longest text."""
Step = Callable[[], dict[str, float]]
made: dict[str, Any] = {}


def skewed_lengths(count: int, total: int, longest: int) -> list[int]:
    """`count` lengths that sum to about `total`: quantiles of a log-normal distribution, as skewed as the
    longest says."""
    places = [NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)]

    def lengths(sigma: float) -> np.ndarray:
        found = np.exp(sigma * np.array(places))
        return found * total / found.sum()

    best = min(np.linspace(0, 3, 3001), key=lambda sigma: abs(lengths(sigma).max() - longest))
    return [max(1, round(length)) for length in lengths(best)]


def encoder(shape: tuple[int, int, int], vocabulary: int = VOCABULARY) -> Encoder:
    layers, hidden, inner = shape
    return Encoder(
        EncoderConfig(
            architecture="bert",
            vocabulary_size=vocabulary,
            hidden_size=hidden,
            layers=layers,
            heads=HEADS,
            intermediate_size=inner,
            max_length=512,
        )
    )


def make(side: str, teacher: Encoder, student: Encoder, sequences: list[np.ndarray], width: int) -> Step:
    """A step: teacher forward, student forward and backward. It returns its losses."""
    if side == "brimful":
        objective = LayerDistillation(teacher.eval(), student)
        slots = round_up_tokens(sum(map(len, sequences)))
        batch = pack(sequences, max_length=width, pad=0, slots=slots)
        return lambda: packed_step(objective, student, batch)
    dense = [peer.PaddedBert(model) for model in (student, teacher)]
    widths = student.config.hidden_size, teacher.config.hidden_size
    project = nn.Linear(*widths) if widths[0] != widths[1] else nn.Identity()
    if side == "dynamic":
        width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.int64)
    real = torch.zeros(ids.shape, dtype=torch.bool)
    for row, tokens in enumerate(sequences):
        ids[row, : len(tokens)] = torch.from_numpy(tokens)
        real[row, : len(tokens)] = True
    modules = nn.ModuleList([dense[0], project])

    def step() -> dict[str, float]:
        modules.zero_grad(set_to_none=True)
        scores, states = peer.layer_losses(dense[0], dense[1].eval(), project, ids, real)
        (scores + states).backward()
        return {"attention": float(scores.detach()), "hidden": float(states.detach())}

    return step


def packed_step(objective: LayerDistillation, student: Encoder, batch: PackedBatch) -> dict[str, float]:
    """What the Trainer does with a micro-batch."""
    nn.ModuleList([student, objective.projections]).zero_grad(set_to_none=True)
    normalizers = objective.normalizers(batch)
    sums = objective.loss(student, batch)
    means = {name: value / normalizers[name] for name, value in sums.items()}
    torch.stack([objective.coefficients[name] * mean for name, mean in means.items()]).sum().backward()
    return {name: float(mean.detach()) for name, mean in means.items()}


def setup(side: str, length: int, threads: int, small: bool) -> Answer:
    """Make the models and the batch, and take a step of tiny models, which maps the code into memory."""
    torch.set_num_threads(threads)
    count, share, longest = CASES[length]
    lengths = skewed_lengths(count, round(share * count * length), longest)
    random = np.random.default_rng(0)
    sequences = [random.integers(1, VOCABULARY, n) for n in lengths]
    tiny = [encoder(shape, 64) for shape in ((2, 24, 48), (1, 12, 24))]
    make(side, *tiny, [np.arange(1, 40)] * 4, 48)()
    torch.manual_seed(0)
    shapes = [(12, 48, 192), (4, 24, 96)] if small else [TEACHER, STUDENT]
    teacher, student = map(encoder, shapes)
    made["step"] = make(side, teacher, student, sequences, length)
    facts: Answer = {"texts": count, "real": sum(lengths), "longest": max(lengths)}
    facts["flops"] = needed_flops(teacher, student, lengths)
    facts["gradients_mb"] = gradients_mb(teacher, student)
    del teacher, student
    gc.collect()
    return facts


def needed_flops(teacher: Encoder, student: Encoder, lengths: list[int]) -> float:
    """Of a step's matrix products for real tokens, backward twice forward; without the attention loss."""
    shape = Shape(tuple(lengths), predictions=0)
    widths = student.config.hidden_size * teacher.config.hidden_size
    projections = 6 * widths * sum(lengths) * (student.config.layers + 1)
    return count_step_flops(teacher.config, shape) / 3 + count_step_flops(student.config, shape) + projections


def gradients_mb(teacher: Encoder, student: Encoder) -> float:
    """MiB of the gradients of the student and of its projection."""
    projection = (student.config.hidden_size + 1) * teacher.config.hidden_size
    return 4 * (sum(p.numel() for p in student.parameters()) + projection) / 2**20


def agree() -> Answer:
    """The largest relative difference between the peer's losses and `LayerDistillation`'s, without padding,
    which only the peer's means count; it adds layers, and ours are a mean over them."""
    torch.manual_seed(0)
    teacher, student = encoder((4, 48, 96), 64), encoder((2, 48, 96), 64)
    sequences = [np.arange(1, 49), np.arange(5, 53)]
    objective = LayerDistillation(teacher.eval(), student)
    ours = packed_step(objective, student, pack(sequences, max_length=48, pad=0))
    theirs = make("tinybert", teacher, student, sequences, 48)()
    layers = student.config.layers
    hidden = ours["embedding"] + layers * ours["hidden"]
    pairs = (layers * ours["attention"], theirs["attention"]), (hidden, theirs["hidden"])
    difference = max(abs(one / other - 1) for one, other in pairs)
    if not difference < 1e-4:
        raise ValueError(f"losses differ by {difference:g}: {ours}, {theirs}")
    return {"difference": difference}


def rate() -> Answer:
    """Flops a second of a large matrix product, by all threads."""
    return {"flops_per_second": matmul_rate(torch.float32)}


def turn() -> Answer:
    """Seconds of a step, and its losses."""
    started = time.perf_counter()
    losses = made["step"]()
    return {"seconds": time.perf_counter() - started, "losses": losses}


def memory() -> Answer:
    """MiB at the most during a step beyond what was resident before it; gradients are part of it."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from now
    before = _status("VmRSS")
    made["step"]()
    return {"peak_mb": (_status("VmHWM") - before) / 1024, "model_mb": before / 1024}


def _status(name: str) -> int:
    """A line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    serve({"setup": setup, "turn": turn, "memory": memory, "agree": agree, "rate": rate})
