"""The models of a page's runs on the same test rows: which one to ship, by its metric, size and speed."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brimful.base.console import counted
from brimful.reports.charts import Chart, Point, scatter_chart
from brimful.reports.content import (
    CLEAR,
    SPACE,
    Card,
    Headline,
    ReportTable,
    accuracy_error,
    branch,
    capitalized,
    doubt,
    is_busy,
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
from brimful.reports.demo import MODELS, label_of, measured_of
from brimful.reports.finetune import RUNGS
from brimful.reports.load import Run, with_children

FEWEST = 3
"""Models that make a picture."""
FASTER = 1.5
"""A model is worth a word if it is this many times as fast as the best."""
MOST_ALTERNATIVES = 3
"""Of a card."""
TEACHER = "Teacher"
COSTS = {
    "milliseconds": "latency_ms",
    **{key: key for key in ("texts_per_second", "megabytes", "parameters", "withheld")},
}
"""What a model takes, by its names in `Candidate` and in a summary."""
GUESSES = (RUNGS["majority"], "majority")


@dataclass(frozen=True)
class Test:
    """What models were measured on: only models of the same test are compared."""

    task: str
    metric: str
    title: str
    n: float
    rows: str
    """The fingerprint of its texts and labels; of a summary that has none, the run, since its rows are not
    known to be those of another."""
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
        error: the standard error of `value` over test rows and seeds, if it is known.
        of_differences: the standard error of the difference from other models, by label, where it was
            measured on the same rows.
        turn: the run that measured the times, in turns with its other models.
        withheld: the proportion of that time in which others had the cores; None: not known.
    """

    label: str
    value: float
    error: float | None = None
    milliseconds: float | None = None
    texts_per_second: float | None = None
    megabytes: float | None = None
    parameters: float | None = None
    of_differences: Mapping[str, float] = field(default_factory=dict)
    turn: Path | None = None
    withheld: float | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it has a time."""
        return bool(self.milliseconds or self.texts_per_second)


@dataclass(frozen=True)
class Choice:
    """The models of one test, the best first."""

    test: Test
    candidates: list[Candidate]
    elsewhere: int = 0
    """Models that were measured on other tests only, and are not compared."""

    def behind(self, other: Candidate) -> tuple[float, float | None]:
        """By how much a model is behind the best, and the standard error of that: paired where it was
        measured so, else the least that it is known to be at most: the sum of those from a third model, or by
        the two models' own errors."""
        best = self.candidates[0]
        ours, theirs = best.of_differences, other.of_differences
        error = ours.get(other.label, theirs.get(best.label))
        if error is None:
            bounds = [ours[third] + theirs[third] for third in ours.keys() & theirs.keys()]
            if best.error is not None and other.error is not None:
                bounds.append(math.hypot(best.error, other.error))
            error = min(bounds, default=None)
        return abs(best.value - other.value), error

    def in_words(self, other: Candidate) -> str:
        """By how much a model is behind the best, for a sentence, and whether that is clear."""
        return f"{self.test.in_words(self.behind(other)[0])} behind{doubt(*self.behind(other))}"

    def may_be_chance(self, other: Candidate) -> bool:
        """Whether a model is known to be not clearly behind the best."""
        difference, error = self.behind(other)
        return error is not None and difference <= CLEAR * error

    def time_of(self, one: Candidate, key: str = "milliseconds") -> float | None:
        """A time that compares with those of the other models: measured in turns with them, or on a machine
        that was not busy."""
        turns = {other.turn for other in self.candidates if other.is_timed}
        value: float | None = getattr(one, key)
        return None if is_busy(one.withheld) and len(turns) > 1 else value


def choice_of(runs: Sequence[Run]) -> Choice | None:
    """The models of all runs, and of the runs inside them.

    Of several test tables, the one that most models were measured on is shown. The same model may be in
    several runs, such as a teacher; it is taken once, with all that any of them says of it.
    """
    every: dict[Test, dict[tuple[str, float], Candidate]] = {}
    trained = {run.path: run for run in with_children(runs) if run.kind in ("finetune", "distil")}
    for test, found in _of_runs(runs, trained):
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

    numbers: dict[str, Any] = {name: known(name) for name in ("error", "megabytes", "parameters")}
    timed = max((first, second), key=lambda one: bool(one.milliseconds) + bool(one.texts_per_second))
    pairs = {**second.of_differences, **first.of_differences}
    return replace(timed, value=first.value, **numbers, of_differences=pairs)


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
        *([f"{milliseconds(quick)} a text"] if (quick := choice.time_of(best)) else []),
    ]
    value = test.shown(best.value, best.error)
    sentences = [
        f"Ship {_inside(best.label)}: its {test.title} on {test.n:,.0f} test rows is {value}"
        + (f", at {' and '.join(costs)}." if costs else ".")
    ]
    if others and others[0].label not in GUESSES:
        sentences.append(f"{others[0].label} is next, {choice.in_words(others[0])}.")
    if (found := _quick(choice)) is not None:
        times, quicker = found
        tail = "" if quicker is others[0] else f", and {choice.in_words(quicker)}"
        sentences.append(f"{quicker.label} is {times:.1f} times as fast{tail}.")
    return Headline(sentences, _cards(choice))


def _is_baseline(one: Candidate) -> bool:
    """Whether no verb writes it as a model: TF-IDF, or a frozen encoder, under a linear model."""
    return one.label.startswith("TF-IDF") or one.label == RUNGS["frozen"] or one.label.endswith(", frozen")


def _remedy(choice: Choice, models: Sequence[Candidate]) -> str:
    """What to do where a baseline is the best."""
    better = "more labels, texts or epochs may bring a model ahead"
    if not models:
        return f"It can be trained with scikit-learn; {better}."
    return f"The best model is {_inside(models[0].label)}, {choice.in_words(models[0])}; {better}."


def _quick(choice: Choice) -> tuple[float, Candidate] | None:
    """The fastest model that is not clearly behind the best, if it is much faster: how many times, and it."""
    best, *others = choice.candidates
    slow = choice.time_of(best)
    times = [
        (slow / time, one)
        for one in others
        if slow and (time := choice.time_of(one)) and choice.may_be_chance(one)
    ]
    fastest = max(times, key=lambda each: each[0], default=(0.0, best))
    return fastest if fastest[0] >= FASTER else None


def _cards(choice: Choice) -> list[Card]:
    test, (best, *others) = choice.test, choice.candidates
    name = capitalized(test.title)
    cards = [Card(name, test.shown(best.value, best.error), _alternatives(others, "value", test.shown))]
    if one_text := choice.time_of(best):
        compared = [one for one in others if choice.time_of(one)]
        note = _alternatives(compared, "milliseconds", milliseconds)
        cards.append(Card("One text", milliseconds(one_text), note))
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
            _timed(choice, one, "milliseconds", milliseconds),
            _timed(choice, one, "texts_per_second", short),
            f"{one.megabytes:,.1f}{SPACE}MB" if one.megabytes else "–",
            short(one.parameters) if one.parameters else "–",
        ]
        for place, one in enumerate(choice.candidates)
    ]
    unit = ", points" if test.percent else ""
    name = capitalized(test.title)
    note = (
        f"The same {test.n:,.0f} test rows, the best model first. ± is the standard error over test rows, and"
        " over seeds; of a difference: paired where both models' answers were compared, else at most that."
        f" Up to {CLEAR:g} standard errors may be chance, and so may a difference without one."
    )
    if any(one.is_timed and not choice.time_of(one) for one in choice.candidates):
        note += " Busy: others had the cores while it was timed, so it does not compare."
    if choice.elsewhere:
        said = "Other test rows, or rows that are not known to be the same, which do not compare"
        note += f" {said}: {counted(choice.elsewhere, 'model')}."
    heads = ["Model", name, f"Behind the best{unit}", "One text", "Texts a second", "Size", "Parameters"]
    return ReportTable("Which model to ship", *known_columns(heads, rows), note, decides=True)


def _timed(choice: Choice, one: Candidate, key: str, show: Callable[[float], str]) -> str:
    """The cell of a time."""
    value = choice.time_of(one, key)
    if value is None and getattr(one, key):
        return "busy"
    return show(value) if value else "–"


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
            if (value := choice.time_of(one, key))
        ]
        if len(points) < FEWEST:
            continue
        note = (
            f"{test.n:,.0f} test texts. {capitalized(words)}: from text to answer, on the machine that made"
            " the run; compares only where that was one machine. Bars: standard error over test rows and"
            " seeds."
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


def _of_runs(runs: Iterable[Run], trained: Mapping[Path, Run]) -> Iterator[tuple[Test, Candidate]]:
    """The models of runs and of those inside them.

    Args:
        trained: the runs that trained models, by their directories.
    """
    for run in runs:
        found = list(_OF_KIND.get(run.kind, _of_run)(run))
        if run.kind == "distil" and (teacher := _run_of(run.config.get("teacher"), trained)):
            found = [
                (test, replace(one, label=teacher.name) if one.label == TEACHER else one)
                for test, one in found
            ]
        if run.kind == "export":
            found = [(test, replace(one, of_differences=_from_source(run, trained))) for test, one in found]
        yield from found
        if run.kind != "demo" or not found:  # its own summary compares the runs inside it
            yield from _of_runs(run.children, trained)


def _from_source(export: Run, trained: Mapping[Path, Run]) -> dict[str, float]:
    """The standard error of an export's difference from its model, as its gate has measured it; nothing where
    the model's metric is the mean over several seeds, which is not the kept model's."""
    source = _run_of(export.path / str(export.summary.get("source")), trained)
    error = metric(export.summary, "gate.standard_error")
    if source is None or error is None:
        return {}
    own = branch(source.summary, "test" if source.kind == "finetune" else "student")
    return {} if any(key.endswith("_runs") for key in own) else {source.name: error}


def _of_demo(run: Run) -> Iterator[tuple[Test, Candidate]]:
    """The models of a demo, by their accuracy."""
    n = metric(run.summary, "test.n")
    if n is None:
        return
    rows = _rows_of(run, branch(run.summary, "test"))
    test = Test("classification", "accuracy", "accuracy", n, rows, percent=True)
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
                    run.path,
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
    rows = _rows_of(run, branch(run.summary, "test"))
    test = Test(task.name, primary.name, primary.title, n, rows, primary.best == "highest", primary.percent)
    places = {"finetune": _of_finetune, "distil": _of_distil, "evaluate": _of_evaluate}[run.kind]
    for label, measured, costs, error_key in places(run):
        value = metric(measured, primary.name)
        if value is None:
            continue
        error = accuracy_error(value, n) if primary.name == "accuracy" else None
        if error is not None:
            error = math.hypot(error, _of_seeds(measured, primary.name))
        reference, of_difference = error_key
        pairs = {} if of_difference is None else {reference: of_difference}
        yield test, Candidate(label, value, error, of_differences=pairs, turn=run.path, **costs)


def _rows_of(run: Run, measured: Mapping[str, Any]) -> str:
    """What is known of the rows that a model was measured on: `Test.rows`."""
    return str(measured.get("fingerprint") or run.path)


def _of_seeds(measured: Any, name: str) -> float:
    """The part of the standard error of a metric that seeds have in it; 0 of one seed."""
    runs = measured.get(f"{name}_runs")
    return (metric(measured, f"{name}_std") or 0.0) / math.sqrt(len(runs) if isinstance(runs, list) else 1)


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
    rows = _rows_of(run, gate)
    test = Test(task.name, primary.name, primary.title, n, rows, primary.best == "highest", primary.percent)
    error = accuracy_error(value, n) if primary.name == "accuracy" else None
    costs = _costs(run.summary | gate | {"latency_ms": gate.get("p50_ms")})
    form = plain(run.summary.get("format"))
    label = run.name if form in run.name else f"{run.name}, {form}"
    yield test, Candidate(label, value, error, turn=run.path, **costs)


_OF_KIND = {"demo": _of_demo, "export": _of_export}

Costs = dict[str, Any]
"""What `COSTS` names."""
Found = tuple[str, Any, Costs, tuple[str, float | None]]
"""A model's label, its metrics, its costs, and another model's label with the standard error of the
difference from it."""


def _of_finetune(run: Run) -> Iterator[Found]:
    test = branch(run.summary, "test")
    yield run.name, test, _costs(run.summary), ("", None)
    # Summaries without a fingerprint are of a version whose errors were those of the kept model alone.
    seeds = 0.0 if "fingerprint" in test else _of_seeds(test, str(run.summary.get("primary_metric")))
    for key, rung in branch(run.summary, "baselines").items():
        label = RUNGS.get(key, title(key))
        error = metric(rung, "standard_error")
        error = None if error is None else math.hypot(error, seeds)
        yield label, rung, _costs(rung), (run.name, error)


def _costs(measured: Any, model: str = "") -> Costs:
    """What a summary, or a part of it, says of its model, or of the one with a name."""
    return {name: metric(measured, f"{key}.{model}" if model else key) for name, key in COSTS.items()}


def _run_of(given: Any, trained: Mapping[Path, Run]) -> Run | None:
    """The run whose model a path names, alone; None if none is known.

    Args:
        trained: runs by their directories.
    """
    paths = given if isinstance(given, list) else [given]
    if len(paths) != 1 or not paths[0]:
        return None
    path = Path(os.path.realpath(str(paths[0])))
    if path.name == "model":
        path = path.parent
    if os.path.exists(path):
        return trained.get(path)
    moved = [run for other, run in trained.items() if other.name == path.name]
    return moved[0] if len(moved) == 1 else None


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
