"""What a run counts, and metrics.jsonl: one JSON object a line, whose keys docs/training.md explains."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_number, format_duration
from brimful.base.storage import atomic_file, make_write_error
from brimful.base.types import Cursor
from brimful.model.flops import Shape, count_step_flops

if TYPE_CHECKING:
    from torch import Tensor

    from brimful.base.distributed import World
    from brimful.data.batch import PackedBatch
    from brimful.model.shape import EncoderConfig


def needed(batch: "PackedBatch", model: "EncoderConfig") -> Shape:
    """What the model must compute on a micro-batch: its real tokens and predictions."""
    kept = None
    if batch.mlm_positions is not None:
        kept = batch.predictions + (batch.real_sequences if "pair" in batch.targets else 0)
    lengths = batch.lengths[: batch.real_sequences]
    return Shape(lengths, batch.predictions, output_tokens=kept)


@dataclass(frozen=True)
class Counts:
    """What updates contain.

    Attributes:
        tokens: real tokens.
        slots: token slots.
        sequences: real sequences.
        padded: slots that these sequences would take if each were padded to the largest length.
        predictions, dropped_predictions: of masked language modelling, and those that found no slot.
        flops: what the model needs for the real tokens and the predictions, forward and backward.
    """

    tokens: int = 0
    slots: int = 0
    sequences: int = 0
    padded: int = 0
    predictions: int = 0
    dropped_predictions: int = 0
    flops: int = 0

    @classmethod
    def of(cls, batch: "PackedBatch", model: "EncoderConfig") -> "Counts":
        """The counts of one micro-batch."""
        return cls(
            tokens=batch.real_tokens,
            slots=batch.tokens.numel(),
            sequences=batch.real_sequences,
            padded=batch.real_sequences * batch.max_length,
            predictions=batch.predictions,
            dropped_predictions=batch.dropped_predictions,
            flops=count_step_flops(model, needed(batch, model)),
        )


def count_batches(batches: Sequence["PackedBatch"], model: "EncoderConfig") -> dict[str, int]:
    """The sum of the `Counts` of micro-batches, by name."""
    each = [asdict(Counts.of(batch, model)) for batch in batches]
    return {name: sum(counts[name] for counts in each) for name in asdict(Counts())}


@dataclass(frozen=True)
class Totals(Counts):
    """What a run has seen so far, over all ranks; a checkpoint holds it.

    Attributes:
        seconds: of training, without evaluations and checkpoints.
    """

    seconds: float = 0.0

    def plus(self, counts: Mapping[str, float], seconds: float) -> "Totals":
        """These totals and the counts of one more update."""
        sums = {name: value + int(counts.get(name, 0)) for name, value in asdict(self).items()}
        return Totals(**sums | {"seconds": self.seconds + seconds})

    @property
    def tokens_per_second(self) -> float:
        """Real tokens per second."""
        return self.tokens / self.seconds

    @property
    def fill(self) -> float:
        """Real tokens divided by token slots."""
        return self.tokens / self.slots


@dataclass
class Window:
    """What accumulates between two lines of metrics. Tensors stay on the device until they are read.

    Attributes:
        sums: for each term, this rank's part of its mean, summed over the updates.
        places: each update's number, and the cursor where its batch begins.
        losses: this rank's part of each update's loss.
        norms: the norm of each update's gradient.
        judged: how many of these updates the guard has judged.
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
        """How many updates it holds."""
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

    def means(self, world: "World") -> dict[str, float]:
        """The mean of each term over the updates and all ranks."""
        means = world.sum([total / self.updates for total in values(list(self.sums.values()))])
        return dict(zip(self.sums, means, strict=True))


def values(scalars: "Sequence[Tensor]") -> list[float]:
    """The values of scalars on a device, in one copy."""
    import torch  # not needed to read metrics

    return torch.stack([scalar.double() for scalar in scalars]).tolist() if scalars else []


class MetricsLog:
    """Appends lines to a file, each in one write.

    Args:
        step: the key of the update in a line.
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
        if self.path.exists():
            lines = read_metrics(self.path)
            kept = [line for line in lines if isinstance(at := line.get(self.step), int) and at <= step]
            with atomic_file(self.path) as temporary:
                temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl. A last line that a kill has cut short is left out.

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


def training_loss(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The loss at the end of a training: the mean of the last tenth of its lines.

    Returns:
        `training_loss`, or nothing where there is no loss or several terms.
    """
    losses = [(key, value) for line in lines for key, value in line.items() if key.startswith("loss.")]
    values = [v for _, v in losses if isinstance(v, int | float) and math.isfinite(v)]
    if len({key for key, _ in losses}) != 1 or not values:
        return {}
    last = values[-max(1, len(values) // 10) :]
    return {"training_loss": sum(last) / len(last)}


MIN_LOSS_GAP_NATS, MIN_LOSS_RATIO = 0.2, 1.1
"""How far a loss on held-out data must be above that of training to be worth a remark."""


def list_outcome(facts: Mapping[str, Any], held_out_loss: float | None) -> dict[str, str | None]:
    """Rows of a table of facts, by their names; None where something is unknown.

    Args:
        facts: of a run; `seconds` and `training_loss` are read.
        held_out_loss: of the trained model on rows that it was not trained on.
    """
    seconds = find_number(facts, "seconds")
    return {
        "Training took": None if seconds is None else format_duration(seconds),
        "Overfits": _describe_overfitting(held_out_loss, find_number(facts, "training_loss")),
    }


def _describe_overfitting(held_out: float | None, training: float | None) -> str | None:
    """A remark on a loss on held-out data that is far above that of training at its end."""
    if held_out is None or training is None:
        return None
    if held_out - training < MIN_LOSS_GAP_NATS or held_out < MIN_LOSS_RATIO * training:
        return None
    advice = "fewer epochs, more data or a smaller model may help"
    return f"loss {held_out:.2f} on held-out data, {training:.2f} in training: {advice}"
