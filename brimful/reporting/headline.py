"""The verdict on a run: a sentence that says what came out, and its main figures as cards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from brimful.reporting.figures import branch, duration, figure, number, percent, plain, plus_minus, points, short, title
from brimful.reporting.load import Run

SHARES = ("accuracy", "f1", "precision", "recall")
CLEAR = 2.0
"""Standard errors beyond which a difference is called clear."""


@dataclass(frozen=True)
class Card:
    """One headline figure."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """The verdict."""

    sentences: list[str] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)


def headline(run: Run) -> Headline:
    """What came out of a run, as far as its summary says so."""
    if not run.finished:
        return Headline([_progress(run)])
    sentences, cards = _OF_KIND.get(run.kind, _anything)(run.summary)
    return Headline([s for s in sentences if s], [card for card in cards if card])


def _progress(run: Run) -> str:
    """How far an unfinished run has got."""
    steps = [line["step"] for line in run.metrics if number(line.get("step")) is not None]
    planned = figure(run.config, "trainer.steps")
    if not steps:
        return "This run is not finished: it has no summary.json yet. What is there is shown."
    of = f" of {planned:,.0f}" if planned else ""
    return f"This run is not finished: it has logged {max(steps):,.0f}{of} updates, and has no summary.json yet."


Parts = tuple[list[str], list[Card | None]]


def _card(label: str, value: float | None, show: Callable[[float], str], note: str = "") -> Card | None:
    return None if value is None else Card(label, show(value), note)


def _time(summary: dict[str, Any], label: str = "Training time") -> Card | None:
    return _card(label, figure(summary, "seconds"), duration)


def packing_card(summary: dict[str, Any]) -> Card | None:
    """How full the rows are, beside what padding would have left."""
    padded = figure(summary, "packing.padded_efficiency")
    note = f"{percent(padded)} with padding" if padded is not None else ""
    return _card("Real tokens in a row", figure(summary, "packing.efficiency"), percent, note)


def _pretrain(summary: dict[str, Any]) -> Parts:
    loss, tokens = figure(summary, "validation.loss"), figure(summary, "tokens")
    perplexity, accuracy = figure(summary, "validation.perplexity"), figure(summary, "validation.accuracy")
    seconds = figure(summary, "seconds")
    sentence = ""
    if tokens is not None and seconds is not None:
        sentence = f"Trained on {short(tokens)} real tokens in {duration(seconds)}"
        sentence += f"; the loss on held-out text is {loss:.2f}." if loss is not None else "."
    return [sentence], [
        _card("Held-out loss", loss, "{:.2f}".format, f"perplexity {short(perplexity)}" if perplexity else ""),
        _card("Masked tokens found", accuracy, percent, "on held-out text"),
        _card("Real tokens a second", figure(summary, "tokens_per_second"), short),
        packing_card(summary),
        _card("Parameters", figure(summary, "parameters"), short),
        _time(summary),
    ]


def _metric_cards(metrics: dict[str, Any], where: str) -> Iterator[Card | None]:
    """A card for each metric: accuracy, F1 and their like as percentages."""
    for key in metrics:
        if key == "n" or key.endswith(("_std", "_runs")):
            continue
        value, spread = number(metrics[key]), figure(metrics, f"{key}_std")
        runs = metrics.get(f"{key}_runs")
        note = f"mean and deviation of {len(runs)} runs" if isinstance(runs, list) else where
        if value is not None and key in SHARES:
            yield Card(title(key).capitalize(), plus_minus(value, spread), note)
        else:
            yield _card(title(key).capitalize(), value, plain, note)


def _finetune(summary: dict[str, Any]) -> Parts:
    accuracy, n = figure(summary, "test.accuracy"), figure(summary, "test.n")
    of = f"{n:,.0f} test texts" if n else "the test texts"
    sentences = [f"{percent(accuracy)} of {of} get the right label."] if accuracy is not None else []
    leaked = figure(summary, "leaked_test_texts")
    if leaked:
        sentences.append(f"Beware: {leaked:,.0f} test texts also stand in the training table.")
    return sentences, [
        *_metric_cards(branch(summary, "test"), f"on {of}"),
        _card("Dev accuracy", figure(summary, "dev.accuracy"), percent, "decides the learning rate"),
        _card("Learning rate", figure(summary, "learning_rate"), plain),
        _card("Parameters", figure(summary, "parameters"), short),
        _time(summary),
    ]


def _distil(summary: dict[str, Any]) -> Parts:
    student, teacher = figure(summary, "student.accuracy"), figure(summary, "teacher.accuracy")
    small, large = figure(summary, "student.parameters"), figure(summary, "teacher.parameters")
    sentence = ""
    if student is not None and teacher:
        sentence = f"The student keeps {percent(student / teacher)} of its teacher’s accuracy"
        sentence += f" with {percent(small / large)} of its parameters." if small and large else "."
    n = figure(summary, "test.n")
    return [sentence], [
        _card("Student accuracy", student, percent, f"on {n:,.0f} test texts" if n else ""),
        _card("Teacher accuracy", teacher, percent),
        _card("Student parameters", small, short, f"teacher: {short(large)}" if large else ""),
        _time(summary),
    ]


def _demo(summary: dict[str, Any]) -> Parts:
    student, teacher = figure(summary, "accuracy.student"), figure(summary, "accuracy.pretrained")
    fast, slow = figure(summary, "latency_ms.student"), figure(summary, "latency_ms.teacher")
    n = figure(summary, "test.n")
    speed_up = slow / fast if fast and slow else None
    texts = f"of {n:,.0f} test reviews" if n else "of the test reviews"
    kept = f"{percent(student / teacher)} of its teacher’s accuracy" if student is not None and teacher else ""
    faster = f"{speed_up:.1f} times as fast" if speed_up else ""
    first = ", ".join(filter(None, [f"gets {percent(student)} {texts} right" if student is not None else "", kept, faster]))
    error = {name: figure(summary, f"accuracy_standard_error.{name}") for name in ("student", "pretrained")}
    difference = figure(summary, "export.max_abs_logit_difference.onnx")
    return [
        f"The distilled student {first}." if first else "",
        _against(summary, "random_init", "the same encoder from random weights"),
        _against(summary, "tfidf", "TF-IDF with logistic regression"),
    ], [
        _card("Student accuracy", student, lambda v: plus_minus(v, error["student"]), kept),
        _card("Teacher accuracy", teacher, lambda v: plus_minus(v, error["pretrained"]), "pretrained, fine-tuned"),
        _card("Student’s speed-up", speed_up, "{:.1f}×".format, f"{fast or 0:.2g} ms a review, teacher {slow or 0:.2g} ms"),
        packing_card(summary),
        _card("Exported logits differ by", difference, "{:.0e}".format, "at most, ONNX against Brimful"),
        _card("From raw text to report", figure(summary, "seconds.total"), duration),
    ]


def _against(summary: dict[str, Any], other: str, words: str) -> str:
    """How the pretrained encoder does against another model, and whether the test can tell them apart."""
    ours, theirs = figure(summary, "accuracy.pretrained"), figure(summary, f"accuracy.{other}")
    if ours is None or theirs is None:
        return ""
    apart = abs(ours - theirs)
    errors = [figure(summary, f"accuracy_standard_error.{name}") or 0.0 for name in ("pretrained", other)]
    paired = figure(summary, f"comparisons.pretrained_vs_{other}.standard_error")
    error = paired if paired is not None else sum(e * e for e in errors) ** 0.5
    relation = "ahead of" if ours > theirs else "behind"
    doubt = "" if apart > CLEAR * error else ", which is within chance"
    return f"Its teacher is {points(apart).lstrip('+')} points {relation} {words}{doubt}."


def _anything(summary: dict[str, Any]) -> Parts:
    """Cards for the first few numbers that stand at the top of a summary."""
    numbers = [(title(key).capitalize(), value) for key, value in summary.items() if number(value) is not None]
    return [], [
        Card("Time", duration(value)) if label == "Seconds" else Card(label, plain(value)) for label, value in numbers[:6]
    ]


_OF_KIND: dict[str, Callable[[dict[str, Any]], Parts]] = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "distil": _distil,
    "demo": _demo,
}
