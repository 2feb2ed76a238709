"""metrics.jsonl: one JSON object a line, the source of truth for curves and reports.

A training line has `step` (updates done), `loss.TERM` (means since the line before), `learning_rate`,
`gradient_norm`, `tokens` (real ones, so far), `tokens_per_second` (real ones, evaluation and checkpoints not
counted), `seconds` (training so far), `fill` (share of token slots that hold real tokens), `data_wait` (share
of the time that the main process waited for data) and, where sources are mixed, `tokens.SOURCE` (so far).
An evaluation line has `step` and `validation.NAME`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.errors import BrimfulError
from brimful.storage import atomic_file, cannot_write

if TYPE_CHECKING:
    from torch import Tensor

    from brimful.data.batch import PackedBatch


@dataclass
class Totals:
    """What a run has seen so far, over all ranks; a checkpoint holds it.

    Attributes:
        tokens: real ones.
        slots: token slots.
        sequences: real ones.
        padded: slots that these sequences would have taken if each were padded to the longest there may be.
        predictions, dropped_predictions: of masked language modelling, and those that found no slot.
        seconds: of training, without evaluations and checkpoints.
    """

    tokens: int = 0
    slots: int = 0
    sequences: int = 0
    padded: int = 0
    predictions: int = 0
    dropped_predictions: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Real ones."""
        return self.tokens / self.seconds

    @property
    def fill(self) -> float:
        """The share of token slots that hold real tokens."""
        return self.tokens / self.slots

    def add(self, counts: Sequence[float]) -> None:
        """Count what `count_batches` gave."""
        for name, count in zip(COUNTS, counts, strict=True):
            setattr(self, name, getattr(self, name) + int(count))


COUNTS = ("tokens", "slots", "sequences", "padded", "predictions", "dropped_predictions")


def count_batches(batches: Sequence["PackedBatch"]) -> list[int]:
    """`COUNTS` of micro-batches, as `Totals` has them."""
    each = [
        (
            *(b.real_tokens, b.tokens.numel(), b.real_sequences, b.real_sequences * b.max_length),
            *(b.predictions, b.dropped_predictions),
        )
        for b in batches
    ]
    return [sum(column) for column in zip(*each, strict=True)] or [0] * len(COUNTS)


@dataclass
class Window:
    """What accumulates between two lines of metrics, on the device until it is read."""

    sums: "dict[str, Tensor]" = field(default_factory=dict)
    updates: int = 0
    norm: "Tensor | float" = 0.0
    waited: float = 0.0
    totals: Totals = field(default_factory=Totals)

    def add(self, means: "dict[str, Tensor]") -> None:
        """Count the means of a micro-batch's terms."""
        for term, mean in means.items():
            self.sums[term] = self.sums.get(term, 0) + mean.detach()


class MetricsLog:
    """Appends lines, each in one write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **values: Any) -> None:
        """Append one line."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def rewind(self, step: int) -> None:
        """Drop what was written after `step`, which a resumed run writes again, and lines without a step."""
        if self.path.exists():
            lines = read_metrics(self.path)
            kept = [line for line in lines if isinstance(line.get("step"), int) and line["step"] <= step]
            with atomic_file(self.path) as temporary:
                temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line that a kill cut short is left out.

    Raises:
        BrimfulError: the file is absent, or a line in its middle is damaged.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    values = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError("not an object")
            values.append(value)
        except ValueError as error:
            if number < len(lines):
                raise BrimfulError(f"{path}, line {number} is damaged; remove that line") from error
    return values
