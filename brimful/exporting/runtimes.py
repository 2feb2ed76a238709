"""Graphs in onnxruntime, and examples in padded batches as they read them. Nothing here imports torch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brimful.data.examples import Examples
from brimful.data.ragged import Ragged

SLOTS = 4096
"""Tokens and padding of a batch."""
PADDING = 256
"""Slots of padding that cost less than another run of the graph; a batch has more only up to a quarter."""
Inputs = dict[str, np.ndarray]
"""input_ids, attention_mask and token_type_ids, int64 (B, L)."""
Run = Callable[[Inputs], np.ndarray]
"""Inputs -> outputs, float32 (B, L, C) or (B, C)."""


@dataclass(frozen=True)
class GraphSession:
    """A graph in onnxruntime.

    Attributes:
        inputs: their names.
        output, shape: of its first output; a size that the inputs decide is no number there.
        run: what it computes of those of the inputs that it has.
    """

    inputs: list[str]
    output: str
    shape: list[Any]
    run: Run


def onnx_session(path: Path, *, spinning: bool = True) -> GraphSession:
    """A file of ONNX in onnxruntime on the CPU, which chooses the number of its threads.

    Args:
        spinning: whether threads that wait for work keep their cores busy, which makes single texts faster.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    first = session.get_outputs()[0]

    def run(inputs: Inputs) -> np.ndarray:
        found: np.ndarray = session.run(None, {name: inputs[name] for name in names})[0]
        return found

    return GraphSession(names, first.name, list(first.shape), run)


def padded_batches(examples: Examples) -> Iterator[tuple[list[int], Inputs]]:
    """Every example once, with others of similar length, the longest first: their numbers and the inputs."""
    order = np.argsort(-examples.lengths, kind="stable").tolist()
    lengths = examples.lengths[order].tolist()
    start = end = 0
    while start < len(order):
        longest, padding, end = lengths[start], 0, start + 1
        while end < len(order) and (end + 1 - start) * longest <= SLOTS:
            padding += longest - lengths[end]
            if padding > max(PADDING, (end + 1 - start) * longest // 4):
                break
            end += 1
        index = order[start:end]
        start = end
        ids = np.full((len(index), longest), examples.pad, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, number in enumerate(index):
            tokens = examples.tokens[number]
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
            types[row, : len(tokens)] = examples.segments[number]
        yield index, {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def padded_outputs(run: Run, examples: Examples, order: list[int] | None = None) -> np.ndarray | Ragged:
    """What a graph gives for each example, float32: (n, C), or ragged (tokens, C) of tokens.

    Args:
        examples: at least one.
        order: output i is the graph's output `order[i]`.
    """
    found: dict[int, np.ndarray] = {}
    by_token = False
    for index, inputs in padded_batches(examples):
        values = run(inputs)
        values = values if order is None else values[..., order]
        by_token = values.ndim == 3
        lengths = inputs["attention_mask"].sum(1).tolist()
        parts = (row[:length].copy() for row, length in zip(values, lengths, strict=True))
        found |= dict(zip(index, parts if by_token else values, strict=True))
    each = [found[number] for number in range(len(examples))]
    return Ragged.of(each, np.float32, each[0].shape[1:]) if by_token else np.array(each, dtype=np.float32)
