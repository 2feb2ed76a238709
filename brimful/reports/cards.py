"""Headline figures: a card each, left out where the figure is absent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brimful.reports.figures import duration, figure, percent


@dataclass(frozen=True)
class Card:
    """One headline figure."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """The verdict on a run: sentences that say what came out, and its main figures."""

    sentences: list[str]
    cards: list[Card]


def card(label: str, value: float | None, show: Callable[[float], str], note: str = "") -> Card | None:
    """A card for a figure, or None for an absent one."""
    return None if value is None else Card(label, show(value), note)


def packing_card(summary: Mapping[str, Any]) -> Card | None:
    """How full the rows are, beside what padding would have left."""
    padded = figure(summary, "packing.padded_efficiency")
    note = f"{percent(padded)} with padding" if padded is not None else ""
    return card("Real tokens in a row", figure(summary, "packing.efficiency"), percent, note)


def time_card(summary: Mapping[str, Any]) -> Card | None:
    """How long the run took."""
    return card("Time", figure(summary, "seconds"), duration)
