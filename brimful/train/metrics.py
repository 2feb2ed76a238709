"""The counts of a run, and metrics.jsonl: one JSON object a line, whose keys docs/pretrain.md explains."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_number, format_duration
from brimful.base.storage import atomic_file, make_write_error
from brimful.base.types import Cursor, Numbers, Values
from brimful.model.flops import Shape, count_step_flops

if TYPE_CHECKING:
    from torch import Tensor

    from brimful.base.distributed import World
    from brimful.data.batch import PackedBatch
    from brimful.model.shape import EncoderConfig


def count_batches(batches: Sequence["PackedBatch"], model: "EncoderConfig") -> Numbers:
    """Sum the counts of `Totals` over micro-batches, by name."""
    counts: Numbers = dict.fromkeys(COUNTS, 0)
    for batch in batches:
        counts["tokens"] += batch.real_tokens
        counts["slots"] += batch.tokens.numel()
        counts["sequences"] += batch.real_sequences
        counts["padded"] += batch.real_sequences * batch.max_length
        counts["predictions"] += batch.predictions
        counts["dropped_predictions"] += batch.dropped_predictions
        lengths, output_tokens = batch.lengths[: batch.real_sequences], None
        if batch.mlm_positions is not None:  # the last layer computes only the slots that a head reads
            output_tokens = batch.predictions
            if "pair" in batch.targets:
                output_tokens += batch.real_sequences
        shape = Shape(lengths, batch.predictions, output_tokens=output_tokens)
        counts["flops"] += count_step_flops(model, shape)
    return counts


@dataclass(frozen=True)
class Totals:
    """Counts over the updates of a run so far, over all ranks; checkpoints store them.

    Attributes:
        tokens: number of real tokens.
        slots: number of token slots.
        sequences: number of real sequences.
        padded: number of slots that these sequences would take if each were padded to the largest length.
        predictions, dropped_predictions: numbers of masked tokens with a slot to predict them, and without.
        flops: floating-point operations for the real tokens and the predictions, forward and backward.
        seconds: duration of training, without evaluations and checkpoints.
    """

    tokens: int = 0
    slots: int = 0
    sequences: int = 0
    padded: int = 0
    predictions: int = 0
    dropped_predictions: int = 0
    flops: int = 0
    seconds: float = 0.0

    def add(self, counts: Numbers, seconds: float) -> "Totals":
        """Add the counts of one more update."""
        sums = {name: getattr(self, name) + int(counts.get(name, 0)) for name in COUNTS}
        return Totals(**sums, seconds=self.seconds + seconds)

    @property
    def tokens_per_second(self) -> float:
        """Real tokens per second."""
        return self.tokens / self.seconds

    @property
    def fill(self) -> float:
        """Real tokens divided by token slots."""
        return self.tokens / self.slots


COUNTS = tuple(each.name for each in fields(Totals) if each.name != "seconds")
"""The names of the whole numbers in `Totals`, which `count_batches` sums for an update."""


@dataclass
class Window:
    """The updates between two lines of metrics. Tensors stay on the device until they are read.

    Attributes:
        sums: this rank's part of the mean of each term, summed over the updates.
        places: the number of each update, and the cursor where its batch begins.
        losses: this rank's part of the loss of each update.
        norms: the norm of the gradient of each update.
        judged: the number of these updates that the guard has judged.
        waited: seconds of waiting for data.
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
        """The number of updates in the window."""
        return len(self.losses)

    def add(
        self, place: "tuple[int, Cursor]", means: "Mapping[str, Tensor]", loss: "Tensor", norm: "Tensor"
    ) -> None:
        """Add an update."""
        self.places.append(place)
        for term, mean in means.items():
            self.sums[term] = self.sums.get(term, 0) + mean
        self.losses.append(loss)
        self.norms.append(norm)

    def average(self, world: "World") -> Numbers:
        """Average each term over the updates and all ranks."""
        means = world.sum([total / self.updates for total in read_scalars(list(self.sums.values()))])
        return dict(zip(self.sums, means, strict=True))


def read_scalars(scalars: "Sequence[Tensor]") -> list[float]:
    """Read scalars from a device in one copy, so that the host waits once."""
    import torch  # not needed to read metrics

    return torch.stack([scalar.double() for scalar in scalars]).tolist() if scalars else []


class MetricsLog:
    """Appends lines to a file, each in one write.

    Args:
        step: the key under which a line stores the number of its update.
    """

    def __init__(self, path: Path, step: str = "step") -> None:
        self.path, self.step = path, step

    def write(self, **values: Any) -> None:
        """Append one line."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise make_write_error(self.path, error) from error

    def rewind(self, step: int) -> None:
        """Drop the lines after `step`, which a resumed run writes again, and lines without a step."""
        if not self.path.exists():
            return
        text = ""
        for line in read_metrics(self.path):
            at = line.get(self.step)
            if isinstance(at, int) and at <= step:
                text += json.dumps(line) + "\n"
        with atomic_file(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def read_metrics(path: Path) -> list[Values]:
    """Read the lines of a metrics.jsonl, except a last line left incomplete when the run was killed.

    Raises:
        BrimfulError: the file cannot be read, or a line before the last is damaged.
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
        except (ValueError, RecursionError) as error:
            if number < len(lines) or isinstance(error, RecursionError):
                raise BrimfulError(f"{path}, line {number} is damaged; remove that line") from error
    return values


def average_last_losses(lines: Iterable[Values]) -> Numbers:
    """Average the losses of the last tenth of a training's lines, which is the training's final loss.

    Returns:
        `training_loss`; an empty mapping without a loss, or with the losses of several terms.
    """
    terms, losses = set(), []
    for line in lines:
        for key, value in line.items():
            if key.startswith("loss."):
                terms.add(key)
                if isinstance(value, int | float) and math.isfinite(value):
                    losses.append(value)
    if len(terms) != 1 or not losses:
        return {}
    last = losses[-max(1, len(losses) // 10) :]
    return {"training_loss": sum(last) / len(last)}


MIN_LOSS_GAP_NATS, MIN_LOSS_RATIO = 0.2, 1.1
"""The smallest difference and ratio of held-out loss and training loss that are worth a remark."""


FactRows = dict[str, str | None]
"""Rows of a table of facts, from name to text; None where a value is unknown."""


def list_outcome(facts: Values, held_out_loss: float | None) -> FactRows:
    """Return how long a training took, and whether its model overfits.

    Args:
        facts: the facts of a run, of which `seconds` and `training_loss` are read.
        held_out_loss: the trained model's loss on rows that it was not trained on.
    """
    seconds = find_number(facts, "seconds")
    return {
        "Training took": None if seconds is None else format_duration(seconds),
        "Overfits": _describe_overfitting(held_out_loss, find_number(facts, "training_loss")),
    }


def _describe_overfitting(held_out: float | None, training: float | None) -> str | None:
    """Return a remark if the held-out loss is far above the final training loss, else None."""
    if held_out is None or training is None:
        return None
    if held_out - training < MIN_LOSS_GAP_NATS or held_out < MIN_LOSS_RATIO * training:
        return None
    advice = "fewer epochs, more data or a smaller model may help"
    return f"loss {held_out:.2f} on held-out data, {training:.2f} in training: {advice}"
