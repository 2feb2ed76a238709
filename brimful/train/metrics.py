"""metrics.jsonl: one JSON object a line, the source of truth for curves and reports.

A training line has `step` (updates done), `loss.TERM` (means since the line before), what the objective
watches beside it (`accuracy`: the share of these updates' labels that had the highest score, with dropout as
it is trained, ties counted as right), `learning_rate`, `gradient_norm`, `tokens` (real ones, so far),
`tokens_per_second` (real ones, evaluation and checkpoints not counted), `seconds` (training so far), `fill`
(share of token slots that hold real tokens), `data_wait` (share of the time that the main process waited for
data) and, where they are known, `mfu` (model flops utilisation since the line before: what the model needs
for real tokens, of what the devices could compute) and `tokens.SOURCE` of a mixture (so far); in fp16
`loss_scale` (of the next update), and since the line before `upper_share` (of the gradients of weights and
activations, those above 2^13), `clipped_gradients` and `nan_gradients` (how many were).
An evaluation line has `step` and `validation.NAME`. Boards (train/boards.py) show the same names.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.errors import BrimfulError
from brimful.nn.flops import Shape, step_flops
from brimful.storage import atomic_file, cannot_write

if TYPE_CHECKING:
    from torch import Tensor

    from brimful.data.batch import PackedBatch
    from brimful.data.rows import Cursor
    from brimful.distributed import World
    from brimful.nn.layers import EncoderConfig


@dataclass
class Totals:
    """What a run has seen so far, over all ranks; a checkpoint holds it.

    Attributes:
        tokens: real ones.
        slots: token slots.
        sequences: real ones.
        padded: slots that these sequences would have taken if each were padded to the longest there may be.
        predictions, dropped_predictions: of masked language modelling, and those that found no slot.
        flops: what the model needs for the real tokens and the predictions, forward and backward.
        seconds: of training, without evaluations and checkpoints.
    """

    tokens: int = 0
    slots: int = 0
    sequences: int = 0
    padded: int = 0
    predictions: int = 0
    dropped_predictions: int = 0
    flops: int = 0
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


COUNTS = ("tokens", "slots", "sequences", "padded", "predictions", "dropped_predictions", "flops")


def count_batches(batches: Sequence["PackedBatch"], model: "EncoderConfig") -> list[int]:
    """`COUNTS` of micro-batches, as `Totals` has them."""
    each = [
        (
            *(b.real_tokens, b.tokens.numel(), b.real_sequences, b.real_sequences * b.max_length),
            *(b.predictions, b.dropped_predictions),
            step_flops(model, Shape(b.lengths[: b.real_sequences], b.predictions)),
        )
        for b in batches
    ]
    return [sum(column) for column in zip(*each, strict=True)] or [0] * len(COUNTS)


@dataclass
class Window:
    """What accumulates between two lines of metrics, on the device until it is read.

    Attributes:
        sums: of this rank's share of each term's means, over the updates.
        places: of each update, its number and where its batch begins.
        losses: this rank's share of the loss of each update.
        norms: of each update's gradient.
        judged: how many of these updates were found usual.
        waited: seconds for data.
    """

    sums: "dict[str, Tensor]" = field(default_factory=dict)
    places: "list[tuple[int, Cursor]]" = field(default_factory=list)
    losses: "list[Tensor]" = field(default_factory=list)
    norms: "list[Tensor]" = field(default_factory=list)
    judged: int = 0
    waited: float = 0.0
    totals: Totals = field(default_factory=Totals)

    @property
    def updates(self) -> int:
        """How many it holds."""
        return len(self.losses)

    def add(
        self, place: "tuple[int, Cursor]", means: "dict[str, Tensor]", loss: "Tensor", norm: "Tensor"
    ) -> None:
        """Count an update."""
        self.places.append(place)
        for term, mean in means.items():
            self.sums[term] = self.sums.get(term, 0) + mean
        self.losses.append(loss)
        self.norms.append(norm)

    def means(self, world: "World") -> dict[str, float]:
        """Of each term over the updates and all ranks."""
        means = world.sum([float(total) / self.updates for total in self.sums.values()])
        return dict(zip(self.sums, means, strict=True))


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
