"""The words of a page: metrics out of nested values, numbers as a person reads them, cards, tables, facts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brimful.tasks.task import Metric

SPACE = "\u202f"
"""Narrow no-break space, between a number and its unit."""
BUSY = 0.1
"""The proportion of the time that others may have the cores before a speed is not the model's own."""
SHOWN_ITEMS = 40
SHOWN_CHARACTERS = 500


def number(value: Any) -> float | None:
    """The value if it is a finite number, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None


def metric(tree: Any, path: str) -> float | None:
    """The number at a dotted path (`student.accuracy`), or None where there is no finite number."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return number(tree)


def kind_of(summary: Mapping[str, Any]) -> str:
    """The verb that made a run; distil for all that train students, which are shown alike."""
    kind = str(summary.get("kind"))
    return "distil" if kind.startswith("distil-") else kind


def branch(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key, or an empty one."""
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def title(key: str) -> str:
    """A key as words: `student_undistilled` -> `student undistilled`."""
    return key.replace("_", " ")


def capitalized(text: str) -> str:
    """With a large first letter; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    """0.8213 -> 82.1 %; between 99 % and 100 % one digit more: 0.9987 -> 99.87 %."""
    return f"{100 * share:.{2 if 0.99 < share < 1 else 1}f}{SPACE}%"


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign: +3.3."""
    return f"{100 * difference:+.1f}".replace("-", "\u2212")


def plus_minus(share: float, error: float | None) -> str:
    """A share and its standard error in percent: 82.1 ± 0.7 %."""
    if error is None:
        return percent(share)
    return f"{100 * share:.1f}{SPACE}±{SPACE}{100 * error:.1f}{SPACE}%"


def short(value: float) -> str:
    """Three digits and a magnitude: 4.2 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return f"{_digits(value / size)}{SPACE}{unit}"
    return _digits(value)


def accuracy_error(share: float, n: float | None) -> float | None:
    """The standard error of a share of n rows; None of all and of none, from which it cannot be seen."""
    return math.sqrt(share * (1 - share) / n) if n and 0 < share < 1 else None


def milliseconds(value: float) -> str:
    """1.02 -> 1 ms, 4.51 -> 4.5 ms, 132.4 -> 132 ms."""
    return f"{value:.0f}{SPACE}ms" if value >= 100 else f"{value:.2g}{SPACE}ms"


def scientific(value: float) -> str:
    """Two digits and an exponent: 3.4e-6."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def tick(value: float) -> str:
    """An axis label, as short as it can be: 2e-4, 0.5, 1.5k, 3M."""
    if value and abs(value) < 1e-2:
        return scientific(value)
    return short(value).replace(SPACE, "")


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """42.3 s, 9 min 42 s, 2 h 05 min."""
    if seconds < 59.5:
        return f"{seconds:.{0 if seconds >= 10 else 1}f}{SPACE}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{SPACE}min {rest}{SPACE}s"
    return f"{minutes // 60}{SPACE}h {minutes % 60:02d}{SPACE}min"


def plain(value: Any) -> str:
    """Any JSON value on one line; a long one is cut."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if 0 < abs(value) < 1e-3:
            return scientific(value)
        return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
    if isinstance(value, list):
        more = f" … {len(value):,} in all" if len(value) > SHOWN_ITEMS else ""
        value = ", ".join(map(plain, value[:SHOWN_ITEMS])) + more
    text = str(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …"


def written(value: float, error: float | None = None, *, share: bool) -> str:
    """A value of a metric with its error or deviation: 82.1 ± 0.7 % if it is a share, else 0.821 ± 0.007."""
    if share:
        return plus_minus(value, error)
    if 1e-3 <= abs(value) < 10:  # as many digits in each row of a table
        return f"{value:.3f}" + ("" if error is None else f"{SPACE}±{SPACE}{error:.3f}")
    return plain(value) + ("" if error is None else f"{SPACE}±{SPACE}{plain(error)}")


def written_gap(difference: float, error: float | None = None, *, share: bool, signed: bool = False) -> str:
    """A difference of two values of a metric, with its error: in points if they are shares."""
    scale, one = (100, ".1f") if share else (1, ".3f")
    sign = "+" if signed else ""
    text = f"{scale * round(difference, 9):{sign}{one}}"  # 0.1125 as it is written, not as it is stored
    text += "" if error is None else f"{SPACE}±{SPACE}{scale * error:{one}}"
    return text.replace("-", "\u2212")


CLEAR = 2.0
"""A difference of more standard errors than this is taken as more than chance."""


def doubt(difference: float, error: float | None, form: str = ", {}") -> str:
    """What a sentence adds to a difference; nothing if it is clear.

    Args:
        form: how the words are joined to what they are said of.
    """
    if error is None:
        return form.format("with an unknown error")
    return form.format("which may be chance") if abs(difference) <= CLEAR * error else ""


def lead(record: Any, decisive: "Metric | None" = None) -> tuple[float | None, float | None]:
    """By how much ours is better than theirs, and the standard error of that, from a record with their
    `difference` (ours minus theirs): of a metric whose lowest is best, a negative difference is a lead."""
    difference, error = metric(record, "difference"), metric(record, "standard_error")
    if difference is not None and decisive is not None and decisive.best == "lowest":
        difference = 0.0 - difference
    return difference, error


def decisive_metric(summary: Mapping[str, Any], metrics: "Sequence[Metric]") -> "Metric | None":
    """The metric that decided, among those of a task."""
    return next((one for one in metrics if one.name == summary.get("primary_metric")), None)


def is_busy(withheld: float | None) -> bool:
    """Whether a time is not the model's own, since others had the cores so much of it."""
    return (withheld or 0.0) >= BUSY


def busy_note(withheld: float | None) -> str:
    """What stands beside a time that was measured while others had the cores."""
    return f"on a machine busy {percent(withheld or 0.0)} of the time" if is_busy(withheld) else ""


@dataclass(frozen=True)
class Card:
    """One metric in large digits."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """What came out of a run: sentences, and its main metrics."""

    sentences: list[str]
    cards: list[Card]


@dataclass(frozen=True)
class ReportTable:
    """A table of words and numbers; the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    decides: bool = False
    """Whether the second column decides: it stays in view where the rest scrolls."""


def known_columns(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The columns in which some row has a value: an older run, for one, has no speeds."""
    known = [column for column in range(len(columns)) if any(row[column] not in ("", "–") for row in rows)]
    return [columns[column] for column in known], [[row[column] for column in known] for row in rows]


def card(label: str, value: float | None, show: Callable[[float], str], note: str = "") -> Card | None:
    """A card for a metric, or None for an absent one."""
    return None if value is None else Card(label, show(value), note)


def packing_card(summary: Mapping[str, Any]) -> Card | None:
    """How full the rows are, and how full padding would have left them."""
    padded = metric(summary, "packing.padded_efficiency")
    note = f"{percent(padded)} with padding" if padded is not None else ""
    return card("Real tokens in a row", metric(summary, "packing.efficiency"), percent, note)


def time_card(summary: Mapping[str, Any]) -> Card | None:
    """How long the run took."""
    return card("Time", metric(summary, "seconds"), duration)


@dataclass(frozen=True)
class Fact:
    """One line of a nested table; a heading has no value."""

    depth: int
    key: str
    value: str


DEEPEST = 4


def facts(tree: Mapping[str, Any], depth: int = 0) -> Iterator[Fact]:
    """A nested mapping as indented lines."""
    for key, value in tree.items():
        if isinstance(value, dict) and value and depth < DEEPEST:
            yield Fact(depth, title(str(key)), "")
            yield from facts(value, depth + 1)
        else:
            yield Fact(depth, title(str(key)), plain(value))
