"""What is known of a trained model besides its metrics: calibration, labels, errors.

The temperature must come from rows that the model did not train on, and that are not test. They are those of
dev. If the model of the final training has seen them, the temperature is that of the trial with the same
settings, which has not. Without dev there is no temperature.

Logits are float (n, classes), labels int64 (n,). The confidence of a prediction is the probability of the
predicted class.
"""

from collections import Counter
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from brimful.base.console import pluralise, say
from brimful.tables.table import LabelledSpan
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import PROBABILITY_DECIMALS, Row, softmax
from brimful.tasks.task import Task
from brimful.tasks.task_data import TaskData

SHOWN = 20
"""Rows in each list of summary.json."""
SHOWN_CHARACTERS = 300
SHOWN_LABELS = 50
"""Labels whose scores are in summary.json."""
BINS = 15
TEMPERATURES = (0.05, 20.0)
FEWEST_ERRORS = 10
"""Errors on dev from which a temperature is fitted: without any, the likelihood asks for the lowest one."""

Summary = dict[str, Any]


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """The mean cross-entropy of softmax(logits / temperature), in nats."""
    logs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.take_along_axis(logs, labels[:, None], 1).mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the least negative log-likelihood (Guo et al., 2017), within `TEMPERATURES`.

    The likelihood is concave in 1 / temperature, so there is one minimum. Where all rows are right it is the
    lowest temperature, where fewer are right than by chance the highest.
    """

    def loss(logarithm: float) -> float:
        return negative_log_likelihood(logits, labels, float(np.exp(logarithm)))

    low, high = np.log(TEMPERATURES)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x))


def compute_confidences(answers: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """The probability of each row's predicted class as `predict` computes and writes it, and compares it with
    `--abstain-below`; float64 (n,)."""
    chances = softmax(answers / np.float32(temperature)).max(1)
    return np.array([round(chance, PROBABILITY_DECIMALS) for chance in chances.tolist()])


def measure_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = BINS) -> float:
    """The mean over predictions of |accuracy - confidence| of their bin, of equal bins of (0, 1]: bin i holds
    those in (i / bins, (i + 1) / bins] (Naeini et al., 2015; Guo et al., 2017)."""
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="left")
    return float(np.abs(np.bincount(place, correct - confidence)).sum() / len(correct))


def review_classifier(
    answers: np.ndarray, test: Encoded, labels: list[str], of_dev: tuple[np.ndarray, Encoded] | None
) -> tuple[Summary, float | None]:
    """What logits (n, classes) of the test rows say of a classifier; and its temperature.

    Args:
        of_dev: logits of dev rows by a model that did not train on them, and these rows, if there are any.

    Returns:
        `calibration`, with the `temperature`, which is 1 where dev has fewer than `FEWEST_ERRORS` errors; and
        `confused`, the most frequent errors.
    """
    truth, predicted = test.targets["label"], answers.argmax(1)
    correct = truth == predicted
    calibration: Summary = {"ece": measure_calibration_error(compute_confidences(answers), correct)}
    errors = Counter(zip(truth[~correct].tolist(), predicted[~correct].tolist(), strict=True))
    confused = [
        {"label": labels[label], "prediction": labels[guess], "rows": rows}
        for (label, guess), rows in sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    ]
    told: Summary = {"calibration": calibration, "confused": confused}
    if of_dev is None:
        say("no dev rows: no temperature (give --dev)")
        return told, None
    dev_answers, dev_labels = of_dev[0], of_dev[1].targets["label"]
    wrong, temperature = int((dev_answers.argmax(1) != dev_labels).sum()), 1.0
    if wrong >= FEWEST_ERRORS:
        temperature = fit_temperature(dev_answers, dev_labels)
    else:
        say(f"{pluralise(wrong, 'error')} on dev: too few for a temperature; probabilities stay as trained")
    calibration |= {"temperature": temperature, "dev_n": len(dev_labels)}
    calibration["ece_calibrated"] = measure_calibration_error(
        compute_confidences(answers, temperature), correct
    )
    return told, temperature


def list_worst_errors(task: Task, answers: Any, data: Encoded) -> list[Row]:
    """The rows whose prediction is wrong: the most confident errors first, or the largest.

    Where predictions have neither a probability nor a size, wrong spans or labels count, then the order of
    the table.
    """
    table, found = data.table, []
    for row, compared in enumerate(task.compare_rows(answers, data)):
        label, prediction = compared["gold"], compared["prediction"]
        size = _wrongness(label, prediction)
        if not size:
            continue
        text = " / ".join([table.texts[row], *([table.second[row]] if table.second else [])])
        if len(text) > SHOWN_CHARACTERS:
            text = text[:SHOWN_CHARACTERS] + " …"
        shown: Row = {"row": table.number(row), "text": text, "label": label, "prediction": prediction}
        if "probability" in compared:
            size = shown["probability"] = compared["probability"]
        found.append((size, shown))
    found.sort(key=lambda item: -item[0])
    return [shown for _, shown in found[:SHOWN]]


def _wrongness(label: Any, prediction: Any) -> float:
    """0 for a right prediction; else how wrong it is."""
    if isinstance(prediction, int | float):
        return abs(label - prediction)
    if isinstance(prediction, str) and isinstance(label, list):  # one of several right answers, or none
        return float(prediction not in (label or [""]))
    return float(len(_items(label) ^ _items(prediction)))


def _items(value: Any) -> set[Any]:
    """What a row has: one label, several, or spans without their texts and probabilities."""
    items = value if isinstance(value, list) else [value]
    return {LabelledSpan(i["start"], i["end"], i["label"]) if isinstance(i, dict) else i for i in items}


def score_labels(task: Task, answers: Any, data: Encoded) -> Summary:
    """How well each label of spans, classes or sets of labels is predicted.

    Returns:
        `by_label`, for at most `SHOWN_LABELS` labels, the most frequent first: `label`, `support` (how
        often it stands in the table), `precision`, `recall`, `f1`; and `never_predicted`, the labels that
        stand there and that no prediction has. Nothing of a task without labels.
    """
    labels = task.facts.get("labels") or []
    if not labels:
        return {}
    support, predicted, hits = Counter[str](), Counter[str](), Counter[str]()
    for compared in task.compare_rows(answers, data):
        wanted, found = _items(compared["gold"]), _items(compared["prediction"])
        for counts, items in ((support, wanted), (predicted, found), (hits, wanted & found)):
            counts.update(item.label if isinstance(item, LabelledSpan) else item for item in items)
    if not set(support) <= set(labels):  # joined labels, which stand for several
        return {}
    lost = [label for label in labels if support[label] and not predicted[label]]
    told: Summary = {"never_predicted": lost} if lost else {}
    if len(labels) > SHOWN_LABELS:
        return told
    told["by_label"] = []
    for label in sorted(labels, key=lambda label: -support[label]):
        precision, recall = (hits[label] / max(n[label], 1) for n in (predicted, support))
        f1 = 2 * hits[label] / max(support[label] + predicted[label], 1)
        told["by_label"].append(
            {"label": label, "support": support[label], "precision": precision, "recall": recall, "f1": f1}
        )
    return told


def review(data: TaskData, answers: Any, dev_answers: Any) -> tuple[Summary, float | None]:
    """What summary.json says of the kept model beside its metrics, and its temperature if dev gives one.

    Args:
        answers: of the kept model, for test.
        dev_answers: for dev, of a model that did not train on dev; None without one.
    """
    task, test, dev = data.task, data.test, data.dev
    told = score_labels(task, answers, test)
    if not isinstance(task, Classification):
        return told | {"errors": list_worst_errors(task, answers, test)}, None
    of_dev = None if dev_answers is None or dev is None else (dev_answers, dev)
    reviewed, temperature = review_classifier(answers, test, task.labels, of_dev)
    calibrated = answers if temperature is None else answers / temperature
    return told | reviewed | {"errors": list_worst_errors(task, calibrated, test)}, temperature
