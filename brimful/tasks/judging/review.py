"""What summary.json says of a trained model besides its metrics: calibration, labels, errors.

The temperature must come from rows that the model did not train on, and that are not test. Dev has such rows.
If the final training has seen dev, the temperature comes from the trial with the same settings, which has
not. Without dev there is no temperature.

Logits are float (n, classes), labels int64 (n,). The confidence of a prediction is the probability of the
predicted class.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from brimful.base.console import pluralise, say
from brimful.base.types import Values
from brimful.tables.table import LabelledSpan
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.label_forms import softmax
from brimful.tasks.prediction_form import PROBABILITY_DECIMALS, Row
from brimful.tasks.task import Task
from brimful.tasks.task_data import TaskData

MAX_ROWS = 20
"""Rows in each list of summary.json."""
MAX_TEXT_CHARACTERS = 300
MAX_LABELS = 50
"""Labels whose scores are in summary.json."""
BINS = 15
TEMPERATURES = (0.05, 20.0)
MIN_ERRORS = 10
"""Errors on dev from which a temperature is fitted: without any, the likelihood asks for the lowest one."""


def negative_log_likelihood(logits: ndarray, labels: ndarray, temperature: float = 1.0) -> float:
    """Return the mean cross-entropy of softmax(logits / temperature), in nats."""
    logs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.take_along_axis(logs, labels[:, None], 1).mean())


def fit_temperature(logits: ndarray, labels: ndarray) -> float:
    """Return the temperature with the least negative log-likelihood (Guo et al., 2017) in `TEMPERATURES`.

    The likelihood is concave in 1 / temperature, so there is one minimum. Where all rows are right it is the
    lowest temperature, where fewer are right than by chance the highest.
    """

    def loss(logarithm: float) -> float:
        return negative_log_likelihood(logits, labels, float(np.exp(logarithm)))

    low, high = np.log(TEMPERATURES)  # in logarithms, where 0.5 and 2 are as far from 1
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x))


def compute_confidences(answers: ndarray, temperature: float = 1.0) -> ndarray:
    """Return the probability of each row's predicted class, float64 (n,), computed and rounded as by
    `predict`, which compares it with `--abstain-below`."""
    # In float32, like the logits that `predict` divides.
    highest = softmax(answers / np.float32(temperature)).max(1)
    return np.array([round(probability, PROBABILITY_DECIMALS) for probability in highest.tolist()])


def measure_calibration_error(confidence: ndarray, correct: ndarray, bins: int = BINS) -> float:
    """Return the mean over predictions of |accuracy - confidence| of their bin, of equal bins: bin i holds
    the predictions in (i / bins, (i + 1) / bins] (Naeini et al., 2015; Guo et al., 2017)."""
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="left")
    return float(np.abs(np.bincount(place, correct - confidence)).sum() / len(correct))


def review_classifier(
    answers: ndarray, test: Encoded, labels: list[str], dev: tuple[ndarray, Encoded] | None
) -> tuple[Values, float | None]:
    """Review a classifier by its logits (n, classes) of the test rows.

    Args:
        dev: logits of dev rows by a model that did not train on them, and these rows, if there are any.

    Returns:
        `calibration`, with the `temperature`, which is 1 where dev has fewer than `MIN_ERRORS` errors, and
        `confused`, the most frequent errors; and the temperature, None without dev.
    """
    gold, predicted = test.targets["label"], answers.argmax(1)
    correct = gold == predicted
    calibration: Values = {"ece": measure_calibration_error(compute_confidences(answers), correct)}
    errors = Counter(zip(gold[~correct].tolist(), predicted[~correct].tolist(), strict=True))
    confused = []
    for (label, guess), rows in sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:MAX_ROWS]:
        confused.append({"label": labels[label], "prediction": labels[guess], "rows": rows})
    facts: Values = {"calibration": calibration, "confused": confused}
    if dev is None:
        say("no dev rows: no temperature (give --dev)")
        return facts, None
    dev_answers, dev_labels = dev[0], dev[1].targets["label"]
    wrong, temperature = int((dev_answers.argmax(1) != dev_labels).sum()), 1.0
    if wrong >= MIN_ERRORS:
        temperature = fit_temperature(dev_answers, dev_labels)
    else:
        say(f"{pluralise(wrong, 'error')} on dev: too few for a temperature; probabilities stay as trained")
    calibration |= {"temperature": temperature, "dev_n": len(dev_labels)}
    confidence = compute_confidences(answers, temperature)
    calibration["ece_calibrated"] = measure_calibration_error(confidence, correct)
    return facts, temperature


def list_worst_errors(task: Task, answers: Any, data: Encoded) -> list[Row]:
    """Return the rows whose prediction is wrong: the most confident errors first, or the largest, or those
    with the most wrong spans or labels, then in the order of the table."""
    table, errors = data.table, []
    for row, compared in enumerate(task.compare_rows(answers, data)):
        label, prediction = compared["gold"], compared["prediction"]
        size = _measure_error(label, prediction)
        if not size:
            continue
        text = table.texts[row]
        if table.second:
            text += f" / {table.second[row]}"
        if len(text) > MAX_TEXT_CHARACTERS:
            text = text[:MAX_TEXT_CHARACTERS] + " …"
        error: Row = {"row": table.number(row), "text": text, "label": label, "prediction": prediction}
        if "probability" in compared:
            size = error["probability"] = compared["probability"]
        errors.append((size, error))
    errors.sort(key=lambda item: -item[0])
    return [error for _, error in errors[:MAX_ROWS]]


def _measure_error(label: Any, prediction: Any) -> float:
    """How wrong a prediction is; 0 for a right one."""
    if isinstance(prediction, int | float):
        return abs(label - prediction)
    if isinstance(prediction, str) and isinstance(label, list):  # one of several right answers, or no answer
        return float(prediction not in (label or [""]))
    return float(len(_list_items(label) ^ _list_items(prediction)))


def _list_items(value: Any) -> set[Any]:
    """The label of a row, its labels, or its spans without their texts and probabilities."""
    items = set()
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            item = LabelledSpan(item["start"], item["end"], item["label"])
        items.add(item)
    return items


def score_labels(task: Task, answers: Any, data: Encoded) -> Values:
    """Score the prediction of each label of spans, classes or sets of labels.

    Returns:
        `by_label`, for at most `MAX_LABELS` labels, the most frequent first: `label`, `support` (how often it
        stands in the table), `precision`, `recall`, `f1`; and `never_predicted`, the labels that stand there
        and that no prediction has. Empty for a task without labels.
    """
    labels = task.facts.get("labels") or []
    if not labels:
        return {}
    support, predicted, hits = Counter[str](), Counter[str](), Counter[str]()
    for compared in task.compare_rows(answers, data):
        # Spans count as wholes, and then by their labels.
        gold, guesses = _list_items(compared["gold"]), _list_items(compared["prediction"])
        for counts, items in ((support, gold), (predicted, guesses), (hits, gold & guesses)):
            counts.update(getattr(item, "label", item) for item in items)
    if not set(support) <= set(labels):  # joined labels, which stand for several
        return {}
    facts: Values = {}
    never = [label for label in labels if support[label] and not predicted[label]]
    if never:
        facts["never_predicted"] = never
    if len(labels) > MAX_LABELS:
        return facts
    facts["by_label"] = []
    for label in sorted(labels, key=lambda label: -support[label]):
        row = {"label": label, "support": support[label]}
        row["precision"] = hits[label] / max(predicted[label], 1)
        row["recall"] = hits[label] / max(support[label], 1)
        row["f1"] = 2 * hits[label] / max(support[label] + predicted[label], 1)
        facts["by_label"].append(row)
    return facts


def review(data: TaskData, answers: Any, dev_answers: Any) -> tuple[Values, float | None]:
    """Return what summary.json says of the kept model besides its metrics, and its temperature, if any.

    Args:
        answers: the answers of the kept model for test.
        dev_answers: answers for dev of a model that did not train on dev; None without one.
    """
    task, test = data.task, data.test
    facts, temperature = score_labels(task, answers, test), None
    if isinstance(task, Classification):
        dev = None
        if dev_answers is not None and data.dev is not None:
            dev = (dev_answers, data.dev)
        reviewed, temperature = review_classifier(answers, test, task.labels, dev)
        facts |= reviewed
        if temperature is not None:
            answers = answers / temperature
    return facts | {"errors": list_worst_errors(task, answers, test)}, temperature
