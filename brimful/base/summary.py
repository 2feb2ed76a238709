"""The Summary of a verb's result: one form for the terminal, the page and `--json`.

A verb measures facts (the keys of summary.json), and one function of the verb turns them into a Summary. The
Summary is stored with the facts under the key `overview`, so that a page can show it for any verb.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from brimful.base.numbers import format_gap, format_metric
from brimful.base.types import Facts, Numbers, Values

OVERVIEW = "overview"
"""The key of a Summary in summary.json, export.json and MANIFEST.json."""
CLEAR_ERRORS = 2.0
"""The number of standard errors above which a difference is taken as more than chance."""
ABSENT = "–"


@dataclass(frozen=True)
class SummaryTable:
    """A table of words and numbers, as they are shown; the first column names the row.

    Attributes:
        is_detail: whether it is folded on the page and left out on a terminal.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    is_detail: bool = False

    def has_words(self, place: int) -> bool:
        """Whether a column holds words, and so is left-aligned: some cell begins with a letter."""
        return any(row[place][:1].isalpha() for row in self.rows)


@dataclass(frozen=True)
class Series:
    """One curve or point.

    Attributes:
        errors: standard errors of `ys`, or empty.
    """

    name: str
    xs: Sequence[float | str]
    ys: list[float]
    errors: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class SummaryChart:
    """A picture.

    Attributes:
        kind: "lines" over x, or "points" with names. A page leaves out other kinds, which
            earlier versions wrote.
        share: whether y is a proportion, which is written in percent.
    """

    title: str
    kind: str
    x: str
    y: str
    series: list[Series]
    note: str = ""
    share: bool = False
    is_detail: bool = False


@dataclass(frozen=True)
class MeasuredOn:
    """The metric and the rows of a measurement. Only models with equal metrics and rows are compared.

    Attributes:
        metric: the title of the metric.
        n: the number of test rows.
        fingerprint: a hash of their texts and labels.
        share: whether the metric is a proportion.
    """

    metric: str
    n: int
    fingerprint: str
    higher_is_better: bool = True
    share: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """A model that was measured on test rows.

    Attributes:
        is_own: whether it is this run's model, which has the name of its folder where runs are compared.
        folder: the folder of the run that the model is from, if that is another run.
        role: a "model" that a verb writes, a "baseline" to compare it with, or a "guess" that reads no text.
        error: the standard error of `value` over test rows and seeds.
        pairs: the standard error of the difference from other models, by their names, where both were
            measured on the same rows.
        milliseconds: the time from a text to its answer.
        seconds: how long its training took.
    """

    name: str
    value: float
    error: float | None = None
    pairs: Numbers = field(default_factory=dict)
    is_own: bool = False
    folder: str = ""
    role: Literal["model", "baseline", "guess"] = "model"
    milliseconds: float | None = None
    texts_per_second: float | None = None
    megabytes: float | None = None
    parameters: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Summary:
    """A result: a title, one sentence, tables, pictures, and the models that were compared.

    Attributes:
        test: the rows that `models` were measured on; None without models.
    """

    title: str
    verdict: str
    tables: list[SummaryTable] = field(default_factory=list)
    charts: list[SummaryChart] = field(default_factory=list)
    test: MeasuredOn | None = None
    models: list[ModelResult] = field(default_factory=list)


def with_overview(facts: Facts, summary: Summary) -> Values:
    """Return the facts of a result with its Summary, as JSON values."""
    return {**facts, OVERVIEW: msgspec.to_builtins(summary)}


def make_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "", is_detail: bool = False
) -> list[SummaryTable]:
    """Return a list of one table, without columns that no row fills; an empty list if nothing is left."""
    filled = []
    for place in range(len(columns)):
        if any(row[place] not in ("", ABSENT) for row in rows):
            filled.append(place)
    if not filled:
        return []
    cells = [[row[place] or ABSENT for place in filled] for row in rows]
    return [SummaryTable(title, [columns[place] for place in filled], cells, note, is_detail)]


def make_facts_table(title: str, values: Mapping[str, str | None]) -> list[SummaryTable]:
    """Make a table of names and values, without the values that are None."""
    rows = [[name, value] for name, value in values.items() if value is not None]
    return [SummaryTable(title, ["", ""], rows)] if rows else []


def sort_models(test: MeasuredOn, models: Sequence[ModelResult]) -> list[ModelResult]:
    """Return the models with the best first. Equal models keep their order."""
    return sorted(models, key=lambda model: model.value, reverse=test.higher_is_better)


def estimate_gap_error(first: ModelResult, second: ModelResult) -> float | None:
    """Estimate the standard error of the difference of two models; None where it is unknown."""
    # Paired answers give the error itself. Errors of single models give an upper bound.
    if second.name in first.pairs:
        return first.pairs[second.name]
    if first.name in second.pairs:
        return second.pairs[first.name]
    if first.error is None or second.error is None:
        return None
    return math.hypot(first.error, second.error)


def describe_gap(test: MeasuredOn, first: ModelResult, second: ModelResult, relation: str) -> str:
    """Describe how far two models are apart: 1.2 ± 0.4 points `relation`, and whether that may be chance."""
    difference, error = abs(first.value - second.value), estimate_gap_error(first, second)
    unit = " points" if test.share else ""
    text = f"{format_gap(difference, error, share=test.share)}{unit} {relation}"
    if error is None:
        return f"{text}, with an unknown error"
    return f"{text}, which may be chance" if difference <= CLEAR_ERRORS * error else text


def judge_models(test: MeasuredOn, models: Sequence[ModelResult]) -> str:
    """Write one sentence: the best model and the next, or that no model is ahead of a baseline."""
    best, *others = sort_models(test, models)
    value = f"{test.metric} {format_metric(best.value, best.error, share=test.share)}"
    on = f"on {test.n:,} test rows"
    # A metric that guessing wins, or a baseline, shows that the training has failed: this comes first.
    if best.role == "guess":
        return f"No model is ahead of the most frequent label, {value} {on}."
    if best.role == "baseline":
        verdict = f"No model is ahead of {best.name}, {value} {on}"
        for model in others:
            if model.role == "model":
                return f"{verdict}; {model.name} is {describe_gap(test, best, model, 'behind')}."
        return f"{verdict}."
    if not others:
        return f"{best.name} reaches {value} {on}."
    gap = describe_gap(test, best, others[0], "behind")
    return f"{best.name} is the best, {value} {on}; {others[0].name} is next, {gap}."
