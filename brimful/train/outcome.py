"""What every training says in its Summary: its time, and whether it overfits."""

from collections.abc import Mapping
from typing import Any

from brimful.base.numbers import duration, metric

MIN_LOSS_GAP_NATS, MIN_LOSS_RATIO = 0.2, 1.1
"""How far a loss on held-out data must be above that of training to be worth a remark."""


def list_outcome(facts: Mapping[str, Any], held_out_loss: float | None) -> dict[str, str | None]:
    """Rows of a table of facts, by their names; None where something is unknown.

    Args:
        facts: of a run; `seconds` and `training_loss` are read.
        held_out_loss: of the trained model on rows that it was not trained on.
    """
    seconds = metric(facts, "seconds")
    return {
        "Training took": None if seconds is None else duration(seconds),
        "Overfits": _describe_overfitting(held_out_loss, metric(facts, "training_loss")),
    }


def _describe_overfitting(held_out: float | None, training: float | None) -> str | None:
    """A remark on a loss on held-out data that is far above that of training at its end."""
    if held_out is None or training is None:
        return None
    if held_out - training < MIN_LOSS_GAP_NATS or held_out < MIN_LOSS_RATIO * training:
        return None
    advice = "fewer epochs, more data or a smaller model may help"
    return f"loss {held_out:.2f} on held-out data, {training:.2f} in training: {advice}"
