"""The models of a page's runs on the same test rows: which one to ship, by its metric, size and speed."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brimful.console import counted
from brimful.reports.charts import Chart, Point, scatter_chart
from brimful.reports.content import (
    SPACE,
    Card,
    Headline,
    ReportTable,
    accuracy_error,
    branch,
    capitalized,
    known_columns,
    metric,
    milliseconds,
    number,
    plain,
    short,
    title,
    written,
    written_gap,
)
from brimful.reports.demo import CLEAR, MODELS, label_of, measured_of
from brimful.reports.finetune import RUNGS
from brimful.reports.load import Run, with_children

FEWEST = 3
"""Models that make a picture."""
FASTER = 1.5
"""A model is worth a word if it is this many times as fast as the best."""
MOST_ALTERNATIVES = 3
"""Of a card."""
TEACHER = "Teacher"
COSTS = ("latency_ms", "texts_per_second", "megabytes", "parameters")
"""What a model takes, by its keys in a summary."""
GUESSES = (RUNGS["majority"], "majority")


@dataclass(frozen=True)
class Test:
    """What models were measured on: only models of the same test are compared."""

    task: str
    metric: str
    title: str
    n: float
    higher_is_better: bool = True
    percent: bool = False

    def shown(self, value: float, error: float | None = None) -> str:
        """A value of the metric, with its error."""
        return written(value, error, share=self.percent)

    def gap(self, difference: float, error: float | None = None) -> str:
        """The size of a difference, with its error."""
        return written_gap(abs(difference), error, share=self.percent)

    def in_words(self, difference: float) -> str:
        """The size of a difference in a sentence: 1.2 points."""
        return f"{self.gap(difference)} points" if self.percent else self.gap(difference)


@dataclass(frozen=True)
class Candidate:
    """A model that was measured on a test table.

    Attributes:
        error: the standard error of `value` over test rows; of several seeds, the deviation over them.
        of_differences: the standard error of the difference from other models, by label, where it was
            measured on the same rows.
    """

    label: str
    value: float
    error: float | None = None
    milliseconds: float | None = None
    texts_per_second: float | None = None
    megabytes: float | None = None
    parameters: float | None = None
    of_differences: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The models of one test, the best first."""

    test: Test
    candidates: list[Candidate]
    elsewhere: int = 0
    """Models that were measured on other tests only, and are not compared."""

    def behind(self, other: Candidate) -> tuple[float, float | None]:
        """By how much a model is behind the best, and the standard error of that: paired where it was
        measured so, else from the two models' own errors, which is too large rather than too small."""
        best = self.candidates[0]
        error = best.of_differences.get(other.label, other.of_differences.get(best.label))
        if error is None and best.error is not None and other.error is not None:
            error = math.hypot(best.error, other.error)
        return abs(best.value - other.value), error

    def may_be_chance(self, other: Candidate) -> bool:
        """Whether a model is not clearly behind the best."""
        difference, error = self.behind(other)
        return error is not None and difference <= CLEAR * error


def choice_of(runs: Sequence[Run]) -> Choice | None:
    """The models of all runs, and of the runs inside them.

    Of several test tables, the one that most models were measured on is shown. The same model may be in
    several runs, such as a teacher; it is taken once, with all that any of them says of it.
    """
    every: dict[Test, dict[tuple[str, float], Candidate]] = {}
    finetuned = {run.path: run.name for run in with_children(runs) if run.kind == "finetune"}
    for test, found in _of_runs(runs, finetuned):
        known = every.setdefault(test, {})
        before = known.get((found.label, found.value))
        known[found.label, found.value] = _merged(before, found) if before else found
    if not every:
        return None
    test, models = max(every.items(), key=lambda item: len(item[1]))
    sign = -1.0 if test.higher_is_better else 1.0
    elsewhere = sum(map(len, every.values())) - len(models)
    return Choice(test, sorted(models.values(), key=lambda one: sign * one.value), elsewhere)


def _merged(first: Candidate, second: Candidate) -> Candidate:
    """One model as two runs know it; the first is believed where both know something."""

    def known(name: str) -> float | None:
        ours: float | None = getattr(first, name)
        theirs: float | None = getattr(second, name)
        return theirs if ours is None else ours

    numbers = {name: known(name) for name in ("error", "megabytes", "parameters")}
    timed = max((first, second), key=lambda one: bool(one.milliseconds) + bool(one.texts_per_second))
    pairs = {**second.of_differences, **first.of_differences}
    return Candidate(
        first.label,
        first.value,
        **numbers,
        milliseconds=timed.milliseconds,
        texts_per_second=timed.texts_per_second,
        of_differences=pairs,
    )


def choice_headline(choice: Choice) -> Headline:
    """Which model to ship, what is next best, what is faster; and its metric, time and size in cards."""
    test, (best, *others) = choice.test, choice.candidates
    reached = f"{test.shown(best.value, best.error)} on {test.n:,.0f} test rows"
    if best.label in GUESSES:
        sentence = f"Ship none of these models: none is ahead of the most frequent label, {reached}."
        return Headline([sentence], [])
    if _is_baseline(best):
        sentence = f"No model here is ahead of {best.label}, a baseline that no verb writes: {reached}."
        models = [one for one in others if not _is_baseline(one) and one.label not in GUESSES]
        return Headline([sentence, _remedy(choice, models)], _cards(choice))
    costs = [
        *([f"{best.megabytes:,.1f}{SPACE}MB"] if best.megabytes else []),
        *([f"{milliseconds(best.milliseconds)} a text"] if best.milliseconds else []),
    ]
    value = test.shown(best.value, best.error)
    sentences = [
        f"Ship {_inside(best.label)}: its {test.title} on {test.n:,.0f} test rows is {value}"
        + (f", at {' and '.join(costs)}." if costs else ".")
    ]
    quick = _quick(choice)
    if others and others[0].label not in GUESSES:
        doubt = ", which may be chance" if choice.may_be_chance(others[0]) else ""
        lead = test.in_words(best.value - others[0].value)
        sentences.append(f"{others[0].label} is next, {lead} behind{doubt}.")
    if quick is not None and best.milliseconds and quick.milliseconds:
        times = f"{best.milliseconds / quick.milliseconds:.1f} times as fast"
        lead = test.in_words(best.value - quick.value)
        tail = "" if quick is others[0] else f", and the {lead} that it is behind may be chance"
        sentences.append(f"{quick.label} is {times}{tail}.")
    return Headline(sentences, _cards(choice))


def _is_baseline(one: Candidate) -> bool:
    """Whether no verb writes it as a model: TF-IDF, or a frozen encoder, under a linear model."""
    return one.label.startswith("TF-IDF") or one.label == RUNGS["frozen"] or one.label.endswith(", frozen")


def _remedy(choice: Choice, models: Sequence[Candidate]) -> str:
    """What to do where a baseline is the best."""
    better = "more labels, texts or epochs may bring a model ahead"
    if not models:
        return f"It can be trained with scikit-learn; {better}."
    doubt = ", which may be chance" if choice.may_be_chance(models[0]) else ""
    behind = choice.test.in_words(choice.behind(models[0])[0])
    return f"The best model is {_inside(models[0].label)}, {behind} behind{doubt}; {better}."


def _quick(choice: Choice) -> Candidate | None:
    """The fastest model that is not clearly behind the best, if it is much faster."""
    best = choice.candidates[0]
    found = [
        one
        for one in choice.candidates[1:]
        if one.milliseconds
        and best.milliseconds
        and FASTER * one.milliseconds <= best.milliseconds
        and choice.may_be_chance(one)
    ]
    return min(found, key=lambda one: one.milliseconds or math.inf, default=None)


def _cards(choice: Choice) -> list[Card]:
    test, (best, *others) = choice.test, choice.candidates
    name = capitalized(test.title)
    cards = [Card(name, test.shown(best.value, best.error), _alternatives(others, "value", test.shown))]
    if best.milliseconds:
        note = _alternatives(others, "milliseconds", milliseconds)
        cards.append(Card("One text", milliseconds(best.milliseconds), note))
    for key, label, show in (
        ("megabytes", "Size", lambda size: f"{size:,.1f}{SPACE}MB"),
        ("parameters", "Parameters", short),
    ):
        value = getattr(best, key)
        if value:
            cards.append(Card(label, show(value), _alternatives(others, key, show)))
    return cards


def _alternatives(others: Sequence[Candidate], key: str, show: Any) -> str:
    """The next models by the same measure; models of one shape say it once."""
    found: list[str] = []
    for one in others:
        value = getattr(one, key)
        text = show(value) if value else ""
        if text and (key == "value" or not any(known.endswith(f" {text}") for known in found)):
            found.append(f"{one.label} {text}")
    return "; ".join(found[:MOST_ALTERNATIVES])


def _inside(label: str) -> str:
    """A label within a sentence: its first letter is small if it begins a word, not a name."""
    return label[:1].lower() + label[1:] if label[:2].istitle() else label


def choice_table(choice: Choice) -> ReportTable:
    """The models, the best first, with what they cost."""
    test = choice.test
    rows = [
        [
            one.label,
            test.shown(one.value, one.error),
            test.gap(*choice.behind(one)) if place else "–",
            milliseconds(one.milliseconds) if one.milliseconds else "–",
            short(one.texts_per_second) if one.texts_per_second else "–",
            f"{one.megabytes:,.1f}{SPACE}MB" if one.megabytes else "–",
            short(one.parameters) if one.parameters else "–",
        ]
        for place, one in enumerate(choice.candidates)
    ]
    unit = ", points" if test.percent else ""
    name = capitalized(test.title)
    note = (
        f"The same {test.n:,.0f} test rows, the best model first. ± of the metric: standard error over test"
        " rows, or of several seeds the deviation over them; of a difference: paired where both models'"
        f" answers were compared. Up to {CLEAR:g} standard errors may be chance."
    )
    if choice.elsewhere:
        note += f" Other test rows, which do not compare: {counted(choice.elsewhere, 'model')}."
    heads = ["Model", name, f"Behind the best{unit}", "One text", "Texts a second", "Size", "Parameters"]
    return ReportTable("Which model to ship", *known_columns(heads, rows), note, decides=True)


def scatter_of(choice: Choice) -> list[Chart]:
    """The metric of the models against the time of one text by itself, and against how many they answer in a
    second; none where that is known of too few."""
    test, found = choice.test, []
    for key, words, unit in (
        ("milliseconds", "the time of one text", "ms a text"),
        ("texts_per_second", "texts a second", "texts a second, many together"),
    ):
        points = [
            Point(one.label, value, one.value, one.error or 0.0)
            for one in choice.candidates
            if (value := getattr(one, key))
        ]
        if len(points) < FEWEST:
            continue
        note = (
            f"{test.n:,.0f} test texts. {capitalized(words)}: from text to answer, on the machine that made"
            " the run; compares only where that was one machine. Bars: standard error over test rows, or of"
            " several seeds the deviation over them."
        )
        found.append(
            scatter_chart(
                f"{capitalized(test.title)} against {words}",
                points,
                unit,
                more_is_faster=key == "texts_per_second",
                higher_is_better=test.higher_is_better,
                percent=test.percent,
                note=note,
            )
        )
    return found


def _of_runs(runs: Iterable[Run], finetuned: Mapping[Path, str]) -> Iterator[tuple[Test, Candidate]]:
    for run in runs:
        found = list(_OF_KIND.get(run.kind, _of_run)(run))
        if run.kind == "distil" and (teacher := _teacher_of(run, finetuned)):
            found = [
                (test, replace(one, label=teacher) if one.label == TEACHER else one) for test, one in found
            ]
        yield from found
        if run.kind != "demo" or not found:  # its own summary compares the runs inside it
            yield from _of_runs(run.children, finetuned)


def _of_demo(run: Run) -> Iterator[tuple[Test, Candidate]]:
    """The models of a demo, by their accuracy."""
    n = metric(run.summary, "test.n")
    if n is None:
        return
    test = Test("classification", "accuracy", "accuracy", n, percent=True)
    errors: dict[str, dict[str, float]] = {}
    for pair, compared in branch(run.summary, "comparisons").items():
        one, _, other = pair.partition("_minus_")
        if (error := metric(compared, "standard_error")) is not None:
            errors.setdefault(label_of(one), {})[label_of(other)] = error
    names = branch(run.summary, "accuracy")
    for name in [*filter(names.__contains__, MODELS), *(one for one in names if one not in MODELS)]:
        value = number(names[name])
        if value is not None:
            label = label_of(name)
            yield (
                test,
                Candidate(
                    label,
                    value,
                    metric(run.summary, f"accuracy_standard_error.{name}"),
                    measured_of(run.summary, name, "latency_ms"),
                    measured_of(run.summary, name, "texts_per_second"),
                    measured_of(run.summary, name, "size_mb"),
                    measured_of(run.summary, name, "parameters"),
                    errors.get(label, {}),
                ),
            )


def _of_run(run: Run) -> Iterator[tuple[Test, Candidate]]:
    """The models of a run of finetune, distil or evaluate."""
    if run.kind not in ("finetune", "distil", "evaluate") or (task := run.task) is None:
        return
    chosen, n = run.summary.get("primary_metric"), metric(run.summary, "test.n")
    primary = next((one for one in task.metrics if one.name == chosen), task.metrics[0])
    if n is None:
        return
    test = Test(task.name, primary.name, primary.title, n, primary.best == "highest", primary.percent)
    places = {"finetune": _of_finetune, "distil": _of_distil, "evaluate": _of_evaluate}[run.kind]
    for label, measured, costs, error_key in places(run):
        value = metric(measured, primary.name)
        if value is None:
            continue
        error = metric(measured, f"{primary.name}_std")
        if error is None and primary.name == "accuracy":
            error = accuracy_error(value, n)
        reference, of_difference = error_key
        pairs = {} if of_difference is None else {reference: of_difference}
        yield test, Candidate(label, value, error, *costs, of_differences=pairs)


def _of_export(run: Run) -> Iterator[tuple[Test, Candidate]]:
    """An export whose gate knows its metric on test rows; rows that a training has chosen by are others."""
    gate, task = branch(run.summary, "gate"), run.task
    n, value = number(gate.get("texts")), number(gate.get("after"))
    primary = next((one for one in task.metrics if one.name == gate.get("metric")), None) if task else None
    if (
        task is None
        or primary is None
        or n is None
        or value is None
        or gate.get("part") not in ("test", "given")
    ):
        return
    test = Test(task.name, primary.name, primary.title, n, primary.best == "highest", primary.percent)
    error = accuracy_error(value, n) if primary.name == "accuracy" else None
    costs = _costs(run.summary | gate | {"latency_ms": gate.get("p50_ms")})
    form = plain(run.summary.get("format"))
    label = run.name if form in run.name else f"{run.name}, {form}"
    yield test, Candidate(label, value, error, *costs)


_OF_KIND = {"demo": _of_demo, "export": _of_export}

Costs = tuple[float | None, float | None, float | None, float | None]
"""The milliseconds of one text, texts a second, megabytes, and parameters."""
Found = tuple[str, Any, Costs, tuple[str, float | None]]
"""A model's label, its metrics, its costs, and another model's label with the standard error of the
difference from it."""


def _of_finetune(run: Run) -> Iterator[Found]:
    yield run.name, run.summary.get("test"), _costs(run.summary), ("", None)
    for key, rung in branch(run.summary, "baselines").items():
        label = RUNGS.get(key, title(key))
        error = metric(rung, "standard_error")
        yield label, rung, _costs(rung), (run.name, error)


def _costs(measured: Any, model: str = "") -> Costs:
    """What a summary, or a part of it, says of its model, or of the one with a name."""
    keys = (f"{key}.{model}" if model else key for key in COSTS)
    one, many, size, count = (metric(measured, key) for key in keys)
    return one, many, size, count


def _teacher_of(run: Run, finetuned: Mapping[Path, str]) -> str:
    """The name of the run whose model is the only teacher of this one; empty if none is.

    Args:
        finetuned: names of runs by their directories.
    """
    given = run.config.get("teacher")
    teachers = given if isinstance(given, list) else [given]
    if len(teachers) != 1 or not teachers[0]:
        return ""
    path = Path(os.path.realpath(str(teachers[0])))
    if path.name == "model":
        path = path.parent
    if os.path.exists(path):
        return finetuned.get(path, "")
    moved = [name for other, name in finetuned.items() if other.name == path.name]
    return moved[0] if len(moved) == 1 else ""


def _of_distil(run: Run) -> Iterator[Found]:
    for label, place, shape in (
        (run.name, "student", "student"),
        (f"{run.name}, from labels alone", "student_without_distillation", "student"),
        ("Teacher's layers, by logits alone", "student_layer_drop", "student_layer_drop"),
        (TEACHER, "teacher", "teacher"),
        (RUNGS["tfidf"], "tfidf", "tfidf"),
    ):
        error = metric(run.summary, f"comparisons.student_minus_{place}.standard_error")
        yield label, run.summary.get(place), _costs(run.summary, shape), (run.name, error)


def _of_evaluate(run: Run) -> Iterator[Found]:
    models = run.summary.get("models")
    rows = [row for row in models if isinstance(row, dict)] if isinstance(models, list) else []
    best = next((plain(row.get("model")) for row in rows if "behind" not in row), "")
    for row in rows:
        error = metric(row, "standard_error")
        yield plain(row.get("model")), row, _costs({}), (best, error)
