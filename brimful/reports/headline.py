"""The verdict on a run, by the verb that made it: what came out, in a sentence and a few cards."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from brimful.reports.content import (
    Card,
    Headline,
    branch,
    card,
    duration,
    metric,
    number,
    packing_card,
    percent,
    plain,
    plus_minus,
    short,
    time_card,
    title,
)
from brimful.reports.demo import demo_headline
from brimful.reports.finetune import calibration_card
from brimful.reports.load import Run
from brimful.reports.prepared import prepared_headline

if TYPE_CHECKING:
    from brimful.tasks.task import Metric, Task

MOST_UNKNOWN_CARDS = 6
"""Cards of a run whose verb is not known here."""

Summary = Mapping[str, Any]


def headline(run: Run) -> Headline:
    """What came out of a run, as far as its summary says so."""
    if not run.finished and run.kind == "prepare":
        return Headline(["This preparation is not finished: it has no MANIFEST.json yet."], [])
    if not run.finished:
        return Headline([_progress(run)], [])
    return headline_of(run.kind, run.summary, run.task if run.kind in OF_TASK else None)


def headline_of(kind: str, summary: Summary, task: "type[Task] | None") -> Headline:
    """What came out of a finished run.

    Args:
        kind: its verb.
        task: of a run of a verb in `OF_TASK`, if this version knows it.
    """
    if kind in OF_TASK and task is not None:
        sentences, cards = OF_TASK[kind](summary, task)
    else:
        sentences, cards = _OF_KIND.get(kind, _anything)(summary)
    return Headline([s for s in sentences if s], [card for card in cards if card])


def _progress(run: Run) -> str:
    """How far an unfinished run has got."""
    steps = [line["step"] for line in run.metrics if number(line.get("step")) is not None]
    planned = metric(run.config, "trainer.steps")
    if not steps:
        return "This run is not finished: it has no summary.json yet."
    of = f" of {planned:,.0f}" if planned else ""
    logged = f"{max(steps):,.0f}{of} updates"
    return f"This run is not finished: it has logged {logged}, and has no summary.json yet."


Parts = tuple[list[str], list[Card | None]]


def _pretrain(summary: Summary) -> Parts:
    loss, tokens = metric(summary, "validation.loss"), metric(summary, "tokens")
    perplexity, seconds = metric(summary, "validation.perplexity"), metric(summary, "seconds")
    sentence = ""
    if tokens is not None and seconds is not None:
        sentence = f"Trained on {short(tokens)} real tokens in {duration(seconds)}"
        sentence += f"; the loss on held-out text is {loss:.2f}." if loss is not None else "."
    normal, entropy = (
        branch(summary, "verdict").get("loss_is_normal"),
        metric(summary, "verdict.unigram_entropy"),
    )
    judged = ""
    if isinstance(normal, bool) and entropy is not None:
        is_normal = "That is normal" if normal else "Beware: that is no better than guessing by frequency"
        judged = f"{is_normal}: the unigram entropy of the corpus is {entropy:.2f}."
    return [sentence, judged], [
        card("Held-out loss", loss, "{:.2f}".format, f"perplexity {short(perplexity)}" if perplexity else ""),
        card("Masked tokens found", metric(summary, "validation.accuracy"), percent, "on held-out text"),
        card("Real tokens a second", metric(summary, "tokens_per_second"), short),
        packing_card(summary),
        card("Parameters", metric(summary, "parameters"), short),
        time_card(summary),
        _bound_card(summary),
    ]


def _bound_card(summary: Summary) -> Card | None:
    """What limits the speed of a run."""
    verdict, share = branch(summary, "verdict"), metric(summary, "verdict.share")
    if share is None or not isinstance(verdict.get("bound"), str):
        return None
    return Card(f"Limited by {verdict['bound']}", percent(share), f"of the time; {verdict.get('next', '')}")


def _finetune(summary: Summary, task: "type[Task]") -> Parts:
    primary, n = _primary(summary, task), metric(summary, "test.n")
    texts = f"{n:,.0f} test texts" if n else "the test texts"
    value = metric(summary, f"test.{primary.name}")
    sentences = []
    if value is not None and primary != task.metrics[0]:
        sentences.append(f"The {primary.title} on {texts} is {_shown(primary)(value)}.")
    elif value is not None:
        sentences.append(task.sentence.format(primary=_shown(primary)(value), texts=texts))
    leaked = metric(summary, "leaked_test_texts")
    if leaked:
        sentences.append(f"Beware: {leaked:,.0f} test texts are also in the training table.")
    dev = metric(summary, f"dev.{primary.name}")
    return sentences, [
        *_metrics(branch(summary, "test"), task, f"on {texts}"),
        calibration_card(summary),
        card(f"Dev {primary.title}", dev, _shown(primary), "decides the learning rate"),
        card("Learning rate", metric(summary, "learning_rate"), plain),
        card("Parameters", metric(summary, "parameters"), short),
        time_card(summary),
        _bound_card(summary),
    ]


def _primary(summary: Summary, task: "type[Task]") -> "Metric":
    """The metric that decided."""
    chosen = summary.get("primary_metric")
    return next((one for one in task.metrics if one.name == chosen), task.metrics[0])


def _shown(primary: "Metric") -> Callable[[float], str]:
    """How a primary metric is written."""
    return percent if primary.percent else plain


def _metrics(measured: Summary, task: "type[Task]", where: str) -> Iterator[Card | None]:
    """A card for each metric of a task, and for what else was measured."""
    known = {one.name: one for one in task.metrics}
    for key in measured:
        if key == "n" or key.endswith(("_std", "_runs")):
            continue
        value, spread, runs = (
            number(measured[key]),
            metric(measured, f"{key}_std"),
            measured.get(f"{key}_runs"),
        )
        note = f"mean ± deviation of {len(runs)} runs" if isinstance(runs, list) else where
        of_task = known.get(key)
        name = _capitalized(of_task.title if of_task else title(key))
        if value is not None and of_task and of_task.percent:
            yield Card(name, plus_minus(value, spread), note)
        elif value is not None and spread is not None:
            yield Card(name, f"{plain(value)} ± {plain(spread)}", note)
        else:
            yield card(name, value, plain, note)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _distil(summary: Summary, task: "type[Task]") -> Parts:
    primary = _primary(summary, task)
    student, teacher = (metric(summary, f"{model}.{primary.name}") for model in ("student", "teacher"))
    small, large = metric(summary, "student.parameters"), metric(summary, "teacher.parameters")
    n = metric(summary, "test.n")
    sentence = ""
    if student is not None and teacher is not None:
        if primary.best == "highest" and teacher > 0:
            sentence = f"The student keeps {percent(student / teacher)} of its teacher’s {primary.title}"
        else:  # a ratio of errors, or with a negative correlation, would say nothing
            ours, theirs = map(_shown(primary), (student, teacher))
            sentence = f"The student’s {primary.title} is {ours} against its teacher’s {theirs}"
        sentence += f" with {percent(small / large)} of its parameters." if small and large else "."
    return [sentence], [
        card(f"Student {primary.title}", student, _shown(primary), f"on {n:,.0f} test texts" if n else ""),
        card(f"Teacher {primary.title}", teacher, _shown(primary)),
        card("Student parameters", small, short, f"teacher: {short(large)}" if large else ""),
        time_card(summary),
        _bound_card(summary),
    ]


def _anything(summary: Summary) -> Parts:
    """The first few numbers at the top level of a summary."""
    keys = [key for key in summary if number(summary[key]) is not None and key != "seconds"]
    cards = [card(title(key).capitalize(), summary[key], plain) for key in keys[: MOST_UNKNOWN_CARDS - 1]]
    return [], [*cards, time_card(summary)]


_OF_KIND: dict[str, Callable[[Summary], Parts]] = {
    "prepare": prepared_headline,
    "pretrain": _pretrain,
    "demo": demo_headline,
}
OF_TASK: dict[str, Callable[[Summary, "type[Task]"], Parts]] = {"finetune": _finetune, "distil": _distil}
