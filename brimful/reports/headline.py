"""The verdict on a run, by the verb that made it: what came out, in a sentence and a few cards."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from brimful.base.console import counted
from brimful.reports.content import (
    SPACE,
    Card,
    Headline,
    accuracy_error,
    branch,
    busy_note,
    capitalized,
    card,
    doubt,
    duration,
    lead,
    metric,
    milliseconds,
    number,
    packing_card,
    percent,
    plain,
    plus_minus,
    short,
    time_card,
    title,
    written_gap,
)
from brimful.reports.demo import demo_headline
from brimful.reports.finetune import RUNGS, calibration_card, held_out_sentence, never_sentence
from brimful.reports.load import Run
from brimful.reports.prepared import prepared_headline
from brimful.train.metrics import training_loss

if TYPE_CHECKING:
    from brimful.tasks.task import Metric, Task

LEAST_GAP, LEAST_RATIO = 0.2, 1.1
"""Of the loss on held-out data over that of training, in nats and as a ratio: what is worth a remark."""
MOST_UNKNOWN_CARDS = 4
"""Cards of a run whose verb is not known here."""

Summary = Mapping[str, Any]


def headline(run: Run) -> Headline:
    """What came out of a run, as far as its summary says so."""
    if not run.finished and run.kind == "prepare":
        return Headline(["This preparation is not finished: it has no MANIFEST.json yet."], [])
    if not run.finished:
        return Headline([_progress(run)], [])
    summary = training_loss(run.metrics) | run.summary  # summaries written before have no loss of training
    return headline_of(run.kind, summary, run.task if run.kind in OF_TASK else None)


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
    sentences = [*sentences, *_overfitted(kind, summary)]
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


def _overfitted(kind: str, summary: Summary) -> list[str]:
    """A remark on a loss on held-out rows that is far above that on the rows trained on."""
    if kind not in ("pretrain", "finetune"):
        return []
    name, path, advice = (
        ("text", "validation.loss", "fewer passes over the text, more of it, or a smaller model")
        if kind == "pretrain"
        else ("rows", "test.loss", "fewer epochs, more rows, or more dropout")
    )
    held_out, training = metric(summary, path), metric(summary, "training_loss")
    if held_out is None or training is None:
        return []
    if held_out - training < LEAST_GAP or held_out < LEAST_RATIO * training:
        return []
    return [
        f"The loss on held-out {name} is {held_out:.2f}, that of training at its end {training:.2f}: the"
        f" model knows its training {name} better than others, so {advice} may help."
    ]


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
        judged = f"That is normal: the unigram entropy of the corpus is {entropy:.2f}."
        if not normal:
            judged = (
                f"Beware: that is no better than guessing by frequency ({entropy:.2f}, the unigram entropy"
                " of the corpus): train longer, or change optimizer.learning_rate."
            )
    alternatives = [
        *([f"perplexity {short(perplexity)}"] if perplexity else []),
        *([f"guessing by frequency {entropy:.2f}"] if entropy is not None else []),
    ]
    return [sentence, judged, _bound(summary)], [
        card("Held-out loss", loss, "{:.2f}".format, "; ".join(alternatives)),
        card("Masked tokens found", metric(summary, "validation.accuracy"), percent, "on held-out text"),
        card("Real tokens a second", metric(summary, "tokens_per_second"), short),
        packing_card(summary),
    ]


def _bound(summary: Summary) -> str:
    """What limits the speed of a run, where that is not its computing or can be mended."""
    verdict, share = branch(summary, "verdict"), metric(summary, "verdict.share")
    bound, advice = verdict.get("bound"), str(verdict.get("next") or "")
    if share is None or not isinstance(bound, str):
        return ""
    then = f": {advice}." if advice else "."
    if bound == "busy machine":
        return f"The machine was busy {percent(share)} of the time{then}"
    if bound == "compute" and not advice.startswith("the MFU is"):
        return ""
    return f"Its speed is limited by {bound}, {percent(share)} of the time{then}"


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
    latency = metric(summary, "latency_ms")
    seconds = metric(summary, "seconds")
    took = f"Its training took {duration(seconds)}." if seconds is not None else ""
    sentences = [*sentences[:1], *_more_tests(summary, primary), *sentences[1:]]
    sentences += [held_out_sentence(summary), took, never_sentence(summary), _bound(summary)]
    one_text = [_rungs(summary, "latency_ms", milliseconds), busy_note(metric(summary, "withheld"))]
    return sentences, [
        _primary_card(summary, primary),
        calibration_card(summary),
        card("One text", latency, milliseconds, "; ".join(filter(None, one_text))),
    ]


def _more_tests(summary: Summary, primary: "Metric") -> list[str]:
    """What the other test tables have measured."""
    told = []
    for name, measured in branch(summary, "tests").items():
        value, n = metric(measured, primary.name), metric(measured, "n")
        if value is not None and n is not None:
            shown = _shown_with_error(measured, primary, n)
            told.append(f"On the {n:,.0f} rows of {plain(name)} the {primary.title} is {shown}.")
    return told


def _shown_with_error(measured: Any, primary: "Metric", n: float | None) -> str:
    """A value of the metric that decided; with the deviation over seeds, or its standard error."""
    value = metric(measured, primary.name) or 0.0
    error = metric(measured, f"{primary.name}_std")
    if error is None and primary.name == "accuracy":
        error = accuracy_error(value, n)
    return (plus_minus if primary.percent else _with_error)(value, error)


def _primary(summary: Summary, task: "type[Task]") -> "Metric":
    """The metric that decided."""
    chosen = summary.get("primary_metric")
    return next((one for one in task.metrics if one.name == chosen), task.metrics[0])


def _shown(primary: "Metric") -> Callable[[float], str]:
    """How a primary metric is written."""
    return percent if primary.percent else plain


def _primary_card(summary: Summary, primary: "Metric") -> Card | None:
    """The metric that decided on test, its error, and what the baselines reach."""
    value, n = metric(summary, f"test.{primary.name}"), metric(summary, "test.n")
    if value is None:
        return None
    shown = _shown_with_error(branch(summary, "test"), primary, n)
    dev = metric(summary, f"dev.{primary.name}")
    note = _rungs(summary, primary.name, _shown(primary))
    if not note and dev is not None:
        note = f"{_shown(primary)(dev)} on dev"
    return Card(capitalized(primary.title), shown, note)


def _rungs(summary: Summary, key: str, show: Callable[[float], str]) -> str:
    """The same measure of each baseline."""
    rungs = branch(summary, "baselines")
    values = {RUNGS.get(name, title(name)): metric(rung, key) for name, rung in rungs.items()}
    return "; ".join(f"{name} {show(value)}" for name, value in values.items() if value)


def _with_error(value: float, error: float | None) -> str:
    return plain(value) + (f"{SPACE}±{SPACE}{plain(error)}" if error is not None else "")


def _distil(summary: Summary, task: "type[Task]") -> Parts:
    primary = _primary(summary, task)
    student, teacher = (metric(summary, f"{model}.{primary.name}") for model in ("student", "teacher"))
    small, large = metric(summary, "student.parameters"), metric(summary, "teacher.parameters")
    n = metric(summary, "test.n")
    sentence = ""
    gap, error = lead(branch(summary, "comparisons").get("student_minus_teacher"))
    if student is not None and teacher is not None:
        if gap is not None and error is not None and (beside := doubt(gap, error)):
            apart = written_gap(gap, error, share=primary.percent, signed=True)
            unit = " points" if primary.percent else ""
            sentence = f"The student’s {primary.title} is {apart}{unit} from its teacher’s{beside},"
        elif primary.best == "highest" and teacher > 0:
            sentence = f"The student keeps {percent(student / teacher)} of its teacher’s {primary.title}"
        else:  # a ratio of errors, or with a negative correlation, would say nothing
            ours, theirs = map(_shown(primary), (student, teacher))
            sentence = f"The student’s {primary.title} is {ours} against its teacher’s {theirs}"
        sentence += f" with {percent(small / large)} of its parameters." if small and large else "."
    fast, slow = (metric(summary, f"latency_ms.{model}") for model in ("student", "teacher"))
    one_text = [
        f"teacher {milliseconds(slow)}" if slow else "",
        busy_note(metric(summary, "withheld.student")),
    ]
    others = [f"teacher {_shown(primary)(teacher)}"] if teacher is not None else []
    for key, name in (("student_without_distillation", "from labels alone"), ("tfidf", RUNGS["tfidf"])):
        value = metric(summary, f"{key}.{primary.name}")
        others += [f"{name} {_shown(primary)(value)}"] if value is not None else []
    seconds = metric(summary, "seconds")
    took = f"Its training took {duration(seconds)}." if seconds is not None else ""
    return [sentence, took, _bound(summary)], [
        card(
            f"Student {primary.title}",
            student,
            lambda _: _shown_with_error(summary["student"], primary, n),
            "; ".join(others),
        ),
        card("One text", fast, milliseconds, "; ".join(filter(None, one_text))),
        card("Student parameters", small, short, f"teacher {short(large)}" if large else ""),
    ]


def _evaluate(summary: Summary, task: "type[Task]") -> Parts:
    """The best of the models, and the next."""
    primary = _primary(summary, task)
    models = summary.get("models")
    rows = [row for row in models if isinstance(row, Mapping)] if isinstance(models, list) else []
    values = [(metric(row, primary.name), plain(row.get("model"))) for row in rows]
    sign = -1.0 if primary.best == "highest" else 1.0
    ordered = sorted(
        ((value, name) for value, name in values if value is not None), key=lambda one: sign * one[0]
    )
    if not ordered:
        return _evaluated_text(summary)
    (best, name), *others = ordered
    shown, after = _shown(primary), ""
    for row in rows:
        gap, error = metric(row, "behind"), metric(row, "standard_error")
        if others and gap is not None and plain(row.get("model")) == others[0][1]:
            unit = " points" if primary.percent else ""
            apart = written_gap(gap, share=primary.percent)
            after = f"; {others[0][1]} is next, {apart}{unit} behind{doubt(gap, error)}"
    return [f"{capitalized(name)} is the best of {counted(len(ordered), 'model')}{after}."], [
        Card(capitalized(primary.title), shown(best), "; ".join(f"{n} {shown(v)}" for v, n in others[:3]))
    ]


def _evaluated_text(summary: Summary) -> Parts:
    """The encoder with the lowest loss on text."""
    text = summary.get("text")
    rows = [row for row in text if isinstance(row, Mapping)] if isinstance(text, list) else []
    losses = [(metric(row, "loss"), plain(row.get("encoder")), plain(row.get("source"))) for row in rows]
    best = min((loss for loss in losses if loss[0] is not None), default=None)
    if best is None:
        return _anything(summary)
    return [f"The lowest loss on held-out text is {best[0]:.3f}, of {best[1]} on {best[2]}."], []


def _export(summary: Summary) -> Parts:
    """What was written, and what the gate found."""
    form, gate = plain(summary.get("format") or "a model"), branch(summary, "gate")
    before, after = (metric(gate, when) for when in ("before", "after"))
    n, error = metric(gate, "texts"), metric(gate, "standard_error")
    if n is None:
        return [f"Exported as {form}; it was not compared on texts."], [_size_card(summary)]
    sentence = (
        f"Exported as {form}, and compared with the model on {n:,.0f} texts of {plain(gate.get('file'))}"
    )
    if before is not None and after is not None:
        change = f"{plain(gate.get('loss_of'))} goes from {before:.4f} to {after:.4f}"
        sentence += f": {change}" + (
            f" (difference {after - before:+.4f} ± {error:.4f})" if error is not None else ""
        )
    rate = metric(gate, "texts_per_second")
    on = " ".join(filter(None, [plain(gate.get("processor") or ""), busy_note(metric(gate, "withheld"))]))
    return [f"{sentence}."], [
        card("Equal predictions", metric(gate, "equal_predictions"), percent),
        card("One text", metric(gate, "p50_ms"), milliseconds, on),
        card("Texts a second", rate, short, on),
        _size_card(summary),
    ]


def _size_card(summary: Summary) -> Card | None:
    return card("Size", metric(summary, "megabytes"), lambda size: f"{size:,.1f}{SPACE}MB")


def _anything(summary: Summary) -> Parts:
    """The first few numbers at the top level of a summary."""
    keys = [key for key in summary if number(summary[key]) is not None and key != "seconds"]
    cards = [card(title(key).capitalize(), summary[key], plain) for key in keys[: MOST_UNKNOWN_CARDS - 1]]
    seconds = metric(summary, "seconds")
    took = f" in {duration(seconds)}" if seconds is not None else ""
    return [f"This run ended{took}; all that it measured is below."], [*cards, time_card(summary)]


_OF_KIND: dict[str, Callable[[Summary], Parts]] = {
    "prepare": prepared_headline,
    "pretrain": _pretrain,
    "demo": demo_headline,
    "export": _export,
}
OF_TASK: dict[str, Callable[[Summary, "type[Task]"], Parts]] = {
    "finetune": _finetune,
    "distil": _distil,
    "evaluate": _evaluate,
}
