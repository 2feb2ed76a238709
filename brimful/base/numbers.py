"""Numbers as a person reads them, and numbers out of nested values."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from brimful.base.types import Facts, Values

NARROW_SPACE = "\u202f"
"""Narrow no-break space, between a number and its unit."""
MINUS = "\u2212"
MAX_ITEMS = 40
"""The most items of a list on one line."""
MAX_CHARACTERS = 500
"""The most characters of a value on one line."""


def finite_number(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):  # a bool is an int in Python
        return None
    return value if math.isfinite(value) else None


def find_number(tree: Any, path: str) -> float | None:
    """Return the number at a dotted path (`student.accuracy`); None where there is no finite number."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return finite_number(tree)


def find_mapping(tree: Facts, key: str) -> Values:
    """Return the mapping under a key, or an empty one."""
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def find_records(tree: Facts, key: str) -> list[Facts]:
    """Return the mappings in the list under a key; empty without a list."""
    values = tree.get(key)
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, Mapping)]


def capitalise(key: str) -> str:
    """Write a key as words with a capital: `student_undistilled` -> `Student undistilled`."""
    text = key.replace("_", " ")
    return text[:1].upper() + text[1:]


def format_percent(share: float) -> str:
    """Write a share: 0.8213 -> 82.1 %; between 99 % and 100 % with one digit more: 0.9987 -> 99.87 %."""
    digits = 2 if 0.99 < share < 1 else 1
    return f"{100 * share:.{digits}f}{NARROW_SPACE}%"


def format_short(value: float) -> str:
    """Write three digits and a magnitude: 4.2 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # 0.9995 is what three digits round up to the next magnitude.
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{NARROW_SPACE}{unit}"
    return f"{value:.3g}"


def format_milliseconds(value: float) -> str:
    """Write a time: 1.02 -> 1 ms, 4.51 -> 4.5 ms, 132.4 -> 132 ms."""
    return f"{value:.0f}{NARROW_SPACE}ms" if value >= 100 else f"{value:.2g}{NARROW_SPACE}ms"


def format_megabytes(value: float) -> str:
    """Write a size: 12.34 -> 12.3 MB."""
    return f"{value:,.1f}{NARROW_SPACE}MB"


def format_duration(seconds: float) -> str:
    """Write a time: 4.2 s, 42 s, 9 min 42 s, 2 h 05 min."""
    if seconds < 10:
        return f"{seconds:.1f}{NARROW_SPACE}s"
    if seconds < 59.5:
        return f"{seconds:.0f}{NARROW_SPACE}s"
    minutes, whole_seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NARROW_SPACE}min {whole_seconds}{NARROW_SPACE}s"
    return f"{minutes // 60}{NARROW_SPACE}h {minutes % 60:02d}{NARROW_SPACE}min"


def format_value(value: Any) -> str:
    """Write any JSON value on one line; a long one is cut."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if abs(value) < 1e-3:
            return f"{value:.2g}"
        if 1000 <= abs(value) < math.inf:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        text = "; ".join(f"{key} {format_value(each)}" for key, each in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(format_value, value[:MAX_ITEMS]))
        if len(value) > MAX_ITEMS:
            text += f" … {len(value):,} in all"
    else:
        text = str(value)
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS] + " …"
    return text


def format_metric(value: float, error: float | None = None, *, share: bool) -> str:
    """Write a value of a metric with its error or deviation: 82.1 ± 0.7 % for a share, else 0.821 ± 0.007."""
    if share:
        if error is None:
            return format_percent(value)
        return f"{_with_error(f'{100 * value:.1f}', 100 * error, '.1f')}{NARROW_SPACE}%"
    if 1e-3 <= abs(value) < 10:  # the same digits in each row of a table
        return _with_error(f"{value:.3f}", error, ".3f")
    return _with_error(format_value(value), error, ".4g")


def format_gap(difference: float, error: float | None = None, *, share: bool) -> str:
    """Write a difference of two values of a metric, with its error: in points if they are shares."""
    scale, digits = (100, ".1f") if share else (1, ".3f")
    # Rounded twice, so that 0.1125 is rounded as it is written and not as it is stored.
    value = f"{scale * round(difference, 9):{digits}}"
    if error is not None:
        value = _with_error(value, scale * error, digits)
    return value.replace("-", MINUS)


def _with_error(value: str, error: float | None, form: str) -> str:
    if error is None:
        return value
    return f"{value}{NARROW_SPACE}±{NARROW_SPACE}{error:{form}}"


def estimate_share_error(share: float, n: float | None) -> float | None:
    """Estimate the standard error of a share of n rows; None for a share of 0 or 1, which shows no spread."""
    return math.sqrt(share * (1 - share) / n) if n and 0 < share < 1 else None


def list_facts(tree: Facts, prefix: str = "") -> Iterator[tuple[str, str]]:
    """List each value of nested facts with its dotted key."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from list_facts(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", format_value(value)
