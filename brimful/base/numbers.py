"""Numbers as a person reads them, and numbers out of nested values."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

NARROW_SPACE = "\u202f"
"""Narrow no-break space, between a number and its unit."""
MINUS = "\u2212"
MAX_ITEMS = 40
"""Items of a list that are written on one line."""
MAX_CHARACTERS = 500
"""Characters of a value that are written on one line."""


def finite_number(value: Any) -> float | None:
    """The value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def find_number(tree: Any, path: str) -> float | None:
    """The number at a dotted path (`student.accuracy`), or None where there is no finite number."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return finite_number(tree)


def find_mapping(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key, or an empty one."""
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def find_records(tree: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under a key; empty without a list."""
    values = tree.get(key)
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


def capitalise(key: str) -> str:
    """A key as words with a capital: `student_undistilled` -> `Student undistilled`."""
    text = key.replace("_", " ")
    return text[:1].upper() + text[1:]


def format_percent(share: float) -> str:
    """0.8213 -> 82.1 %; between 99 % and 100 % one digit more: 0.9987 -> 99.87 %."""
    digits = 2 if 0.99 < share < 1 else 1
    return f"{100 * share:.{digits}f}{NARROW_SPACE}%"


def format_short(value: float) -> str:
    """Three digits and a magnitude: 4.2 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{NARROW_SPACE}{unit}"
    return f"{value:.3g}"


def format_milliseconds(value: float) -> str:
    """1.02 -> 1 ms, 4.51 -> 4.5 ms, 132.4 -> 132 ms."""
    return f"{value:.0f}{NARROW_SPACE}ms" if value >= 100 else f"{value:.2g}{NARROW_SPACE}ms"


def format_megabytes(value: float) -> str:
    """12.34 -> 12.3 MB."""
    return f"{value:,.1f}{NARROW_SPACE}MB"


def format_duration(seconds: float) -> str:
    """42.3 s, 9 min 42 s, 2 h 05 min."""
    if seconds < 59.5:
        digits = 0 if seconds >= 10 else 1
        return f"{seconds:.{digits}f}{NARROW_SPACE}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NARROW_SPACE}min {rest}{NARROW_SPACE}s"
    return f"{minutes // 60}{NARROW_SPACE}h {minutes % 60:02d}{NARROW_SPACE}min"


def format_value(value: Any) -> str:
    """Any JSON value on one line; a long one is cut."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if abs(value) < 1e-3:
            return f"{value:.2g}"
        return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
    if isinstance(value, Mapping):
        text = "; ".join(f"{key} {format_value(each)}" for key, each in value.items())
    elif isinstance(value, list):
        more = f" … {len(value):,} in all" if len(value) > MAX_ITEMS else ""
        text = ", ".join(map(format_value, value[:MAX_ITEMS])) + more
    else:
        text = str(value)
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " …"


def format_metric(value: float, error: float | None = None, *, share: bool) -> str:
    """A value of a metric with its error or deviation: 82.1 ± 0.7 % if it is a share, else 0.821 ± 0.007."""
    if share and error is None:
        return format_percent(value)
    if share and error is not None:
        return f"{_with_error(f'{100 * value:.1f}', 100 * error, '.1f')}{NARROW_SPACE}%"
    if 1e-3 <= abs(value) < 10:  # as many digits in each row of a table
        return _with_error(f"{value:.3f}", error, ".3f")
    return _with_error(format_value(value), error, ".4g")


def format_gap(difference: float, error: float | None = None, *, share: bool) -> str:
    """A difference of two values of a metric, with its error: in points if they are shares."""
    scale, digits = (100, ".1f") if share else (1, ".3f")
    value = f"{scale * round(difference, 9):{digits}}"  # 0.1125 as it is written, not as it is stored
    return _with_error(value, None if error is None else scale * error, digits).replace("-", MINUS)


def _with_error(value: str, error: float | None, form: str) -> str:
    return value if error is None else f"{value}{NARROW_SPACE}±{NARROW_SPACE}{error:{form}}"


def estimate_share_error(share: float, n: float | None) -> float | None:
    """The standard error of a share of n rows; None of all and of none, from which it cannot be seen."""
    return math.sqrt(share * (1 - share) / n) if n and 0 < share < 1 else None


def list_facts(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each value of nested facts with its dotted key."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from list_facts(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", format_value(value)
