"""The process of one variant of bench/step: it sets up a step, and takes it when asked to."""

import time
from dataclasses import replace
from typing import Any

import torch

from bench.common.memory import peak_mb, saved_bytes
from bench.common.reference import matmul_rate
from bench.common.turns import Answer, serve
from bench.step.variants import Cell, Step, Variant
from brimful.model.flops import count_step_flops

made: list[Step] = []
TURN = 2.0  # so that the first of quick steps, after others had the caches, does not decide


def setup(cell: dict[str, Any], variant: dict[str, Any], warm_ups: int) -> Answer:
    """Make the model, compile it, warm up; the loss of the first weights, and what there is in each batch."""
    torch.set_num_threads(cell["threads"])
    step = Step(Cell(**cell), Variant(**variant | {"off": tuple(variant["off"])}))
    made.append(step)
    loss = step.loss(step.check)
    loss.backward()
    step.optimizer.zero_grad()
    for _ in range(warm_ups):
        for item in step.items:
            step.train(item)
    return {
        "loss": float(loss),
        "real_tokens": sum(item.real_tokens for item in step.items),
        "flops": sum(count_step_flops(step.config, item.shape) for item in step.items),
        "sequences_per_row": step.items[0].per_row,
    }


def turn() -> Answer:
    """Mean seconds of a training step over each batch: of as many as fill `TURN` seconds, one at least."""
    started, steps = time.perf_counter(), 0
    while steps == 0 or time.perf_counter() - started < TURN:
        for item in made[0].items:
            made[0].train(item)
        steps += 1
    return {"seconds": (time.perf_counter() - started) / steps}


def rate(dtype: str) -> Answer:
    """Flops a second of a large matrix product with this process's threads."""
    return {"flops_per_second": matmul_rate(torch.bfloat16 if dtype == "bf16" else torch.float32)}


def saved(sequences: list[int]) -> Answer:
    """Bytes saved for backward, and real tokens, of batches of `sequences` sequences each."""
    step, found = made[0], []
    for count in sequences:
        cell = replace(step.cell, sequences=count)
        item = step.item(cell.lengths())
        found.append([saved_bytes(lambda item=item: step.loss(item), step.parameters), item.real_tokens])  # type: ignore[misc]
    return {"bytes_and_tokens": found}


def peak() -> Answer:
    """The most memory so far."""
    return {"peak_mb": peak_mb()}


if __name__ == "__main__":
    serve({"setup": setup, "turn": turn, "rate": rate, "saved": saved, "peak": peak})
