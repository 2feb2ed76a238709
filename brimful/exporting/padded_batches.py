"""Graphs in onnxruntime, and the padded batches that they read. Nothing here imports torch."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy import ndarray

from brimful.data.examples import Examples
from brimful.data.ragged import Ragged

BATCH_SLOTS = 4096
"""The most slots of a batch of several examples: tokens and padding."""
PADDING_SLOTS = 256
"""The most slots of padding in a batch, or a quarter of the batch if that is more: another run of the graph
would cost more."""
Inputs = dict[str, ndarray]
"""input_ids, attention_mask and token_type_ids, int64 (B, L)."""
Run = Callable[[Inputs], ndarray]
"""Inputs -> outputs, float32 (B, L, C) or (B, C)."""


class GraphSession:
    """A graph in onnxruntime on the CPU, with as many threads as onnxruntime chooses.

    Attributes:
        inputs: the names of its inputs.
        output, shape: the name and the shape of its first output; a size set by the inputs is a name.
    """

    def __init__(self, path: Path, *, spinning: bool = True) -> None:
        """`spinning`: whether threads that wait keep their cores busy, which makes single texts faster."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = [value.name for value in self._session.get_inputs()]
        first = self._session.get_outputs()[0]
        self.output, self.shape = first.name, first.shape

    def run(self, inputs: Inputs) -> ndarray:
        """Compute the first output. Inputs that the graph does not have are ignored."""
        return self._session.run(None, {name: inputs[name] for name in self.inputs})[0]


def padded_batches(examples: Examples) -> Iterator[tuple[list[int], Inputs]]:
    """Yield batches of examples of similar length, the longest first: the examples' numbers and inputs."""
    order = np.argsort(-examples.lengths, kind="stable").tolist()
    lengths = examples.lengths[order].tolist()
    start = 0
    while start < len(order):
        longest, padding, end = lengths[start], 0, start + 1
        while end < len(order) and (end + 1 - start) * longest <= BATCH_SLOTS:
            padding += longest - lengths[end]
            if padding > max(PADDING_SLOTS, (end + 1 - start) * longest // 4):
                break
            end += 1
        yield order[start:end], _pad(examples, order[start:end], longest)
        start = end


def _pad(examples: Examples, index: list[int], longest: int) -> Inputs:
    ids = np.full((len(index), longest), examples.pad, dtype=np.int64)  # (B, L), as are mask and types
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for row, number in enumerate(index):
        tokens = examples.tokens[number]
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
        types[row, : len(tokens)] = examples.segments[number]
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def padded_outputs(run: Run, examples: Examples, order: list[int] | None = None) -> ndarray | Ragged:
    """Run a graph on examples.

    Args:
        examples: at least one.
        order: output i is the graph's output `order[i]`.

    Returns:
        float32: (n, C), or ragged (tokens, C) if the graph has an output for each token.
    """
    outputs = {}
    by_token = False
    for index, inputs in padded_batches(examples):
        values = run(inputs)
        if order is not None:
            values = values[..., order]
        by_token = values.ndim == 3
        for number, row, length in zip(index, values, inputs["attention_mask"].sum(1).tolist(), strict=True):
            if by_token:
                row = row[:length].copy()  # a view would hold the padding, too
            outputs[number] = row
    rows = [outputs[number] for number in range(len(examples))]
    if by_token:
        return Ragged.of(rows, np.float32, rows[0].shape[1:])
    return np.array(rows, dtype=np.float32)
