"""The verdict on a run, by the verb that made it: what came out, in a sentence and a few cards."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from brimful.reports.content import (
    Card,
    Headline,
    branch,
    card,
    duration,
    number,
    packing_card,
    percent,
    plain,
    plus_minus,
    short,
    time_card,
    title,
)
from brimful.reports.content import metric as figure
from brimful.reports.demo import demo_headline
from brimful.reports.load import Run
from brimful.reports.prepared import prepared_headline

SHARES = ("accuracy", "f1", "precision", "recall")
"""Metrics shown in percent."""
MOST_CARDS = 6

Summary = Mapping[str, Any]


def headline(run: Run) -> Headline:
    """What came out of a run, as far as its summary says so."""
    if not run.finished and run.kind == "prepare":
        return Headline(["This preparation is not finished: it has no MANIFEST.json yet."], [])
    if not run.finished:
        return Headline([_progress(run)], [])
    sentences, cards = _OF_KIND.get(run.kind, _anything)(run.summary)
    return Headline([s for s in sentences if s], [card for card in cards if card])


def _progress(run: Run) -> str:
    """How far an unfinished run has got."""
    steps = [line["step"] for line in run.metrics if number(line.get("step")) is not None]
    planned = figure(run.config, "trainer.steps")
    if not steps:
        return "This run is not finished: it has no summary.json yet."
    of = f" of {planned:,.0f}" if planned else ""
    logged = f"{max(steps):,.0f}{of} updates"
    return f"This run is not finished: it has logged {logged}, and has no summary.json yet."


Parts = tuple[list[str], list[Card | None]]


def _pretrain(summary: Summary) -> Parts:
    loss, tokens = figure(summary, "validation.loss"), figure(summary, "tokens")
    perplexity, seconds = figure(summary, "validation.perplexity"), figure(summary, "seconds")
    sentence = ""
    if tokens is not None and seconds is not None:
        sentence = f"Trained on {short(tokens)} real tokens in {duration(seconds)}"
        sentence += f"; the loss on held-out text is {loss:.2f}." if loss is not None else "."
    return [sentence], [
        card("Held-out loss", loss, "{:.2f}".format, f"perplexity {short(perplexity)}" if perplexity else ""),
        card("Masked tokens found", figure(summary, "validation.accuracy"), percent, "on held-out text"),
        card("Real tokens a second", figure(summary, "tokens_per_second"), short),
        packing_card(summary),
        card("Parameters", figure(summary, "parameters"), short),
        time_card(summary),
    ]


def _finetune(summary: Summary) -> Parts:
    accuracy, n = figure(summary, "test.accuracy"), figure(summary, "test.n")
    texts = f"{n:,.0f} test texts" if n else "the test texts"
    sentences = [f"{percent(accuracy)} of {texts} get the right label."] if accuracy is not None else []
    leaked = figure(summary, "leaked_test_texts")
    if leaked:
        sentences.append(f"Beware: {leaked:,.0f} test texts also stand in the training table.")
    return sentences, [
        *_metrics(branch(summary, "test"), f"on {texts}"),
        card("Dev accuracy", figure(summary, "dev.accuracy"), percent, "decides the learning rate"),
        card("Learning rate", figure(summary, "learning_rate"), plain),
        card("Parameters", figure(summary, "parameters"), short),
        time_card(summary),
    ]


def _metrics(metrics: Summary, where: str) -> Iterator[Card | None]:
    """A card for each metric of a task."""
    for key in metrics:
        if key == "n" or key.endswith(("_std", "_runs")):
            continue
        value, spread, runs = number(metrics[key]), figure(metrics, f"{key}_std"), metrics.get(f"{key}_runs")
        note = f"mean ± deviation of {len(runs)} runs" if isinstance(runs, list) else where
        if value is not None and key in SHARES:
            yield Card(title(key).capitalize(), plus_minus(value, spread), note)
        else:
            yield card(title(key).capitalize(), value, plain, note)


def _distil(summary: Summary) -> Parts:
    student, teacher = figure(summary, "student.accuracy"), figure(summary, "teacher.accuracy")
    small, large = figure(summary, "student.parameters"), figure(summary, "teacher.parameters")
    n = figure(summary, "test.n")
    sentence = ""
    if student is not None and teacher:
        sentence = f"The student keeps {percent(student / teacher)} of its teacher’s accuracy"
        sentence += f" with {percent(small / large)} of its parameters." if small and large else "."
    return [sentence], [
        card("Student accuracy", student, percent, f"on {n:,.0f} test texts" if n else ""),
        card("Teacher accuracy", teacher, percent),
        card("Student parameters", small, short, f"teacher: {short(large)}" if large else ""),
        time_card(summary),
    ]


def _anything(summary: Summary) -> Parts:
    """The first few numbers that stand at the top of a summary."""
    keys = [key for key in summary if number(summary[key]) is not None and key != "seconds"]
    cards = [card(title(key).capitalize(), summary[key], plain) for key in keys[: MOST_CARDS - 1]]
    return [], [*cards, time_card(summary)]


_OF_KIND: dict[str, Callable[[Summary], Parts]] = {
    "prepare": prepared_headline,
    "pretrain": _pretrain,
    "finetune": _finetune,
    "distil": _distil,
    "demo": demo_headline,
}
