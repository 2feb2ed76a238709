"""What is known of a trained model besides its metrics: calibration, errors, doubtful labels of its training.

The temperature must come from rows that the model did not train on, and that are not test. They are those of
dev. If the model of the final training has seen them, the temperature is that of the trial with the same
settings, which has not. Without dev there is no temperature.
"""

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from brimful.base.console import counted, say
from brimful.base.extras import missing
from brimful.corpus.text.special_ids import special_ids
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.tables.labelled_spans import LabelledSpan
from brimful.tasks.cache import content_hash, known_facts
from brimful.tasks.classification import Classification, probabilities
from brimful.tasks.data import TaskData, drawn
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import PROBABILITY_DECIMALS, Row
from brimful.tasks.judging import analysis
from brimful.tasks.judging.checks import Finding, check_tables, check_unknown, lengths_of_encoded
from brimful.tasks.task import Task
from brimful.train.objective import Runtime

SHOWN = 20
"""Rows in each list of summary.json."""
SHOWN_CHARACTERS = 300
LARGEST_MATRIX = 50
"""Classes of a confusion matrix in summary.json."""
TARGETS = (0.9, 0.95, 0.98, 0.99)
"""Accuracies for which a threshold is looked for."""
DOUBTED = 20_000
"""Rows of train whose labels are checked at most: a logistic regression takes a minute for more."""
MOST_CLASSES = 400
"""Labels of more classes are not checked: a regression of 10,000 classes takes hours."""
FEWEST = 50
"""Rows of train from which labels are checked."""
FEWEST_ERRORS = 10
"""Errors on dev from which a temperature is fitted: without any, the likelihood asks for the lowest one."""

Summary = dict[str, Any]


def check_before(data: TaskData, encoder: Encoder, *, own_dev: bool) -> tuple[list[Finding], Summary]:
    """What is odd in the tables of a run, and the part of summary.json that is known before training.

    Args:
        own_dev: whether dev is a table of its own, not a part of train.
    """
    assert encoder.tokenizer is not None
    encoded = {"test": data.test}
    if own_dev and data.dev is not None:
        encoded["dev"] = data.dev
    encoded |= {f"more_tests[{index}]": part for index, part in enumerate(data.more_tests)}
    every = {"train": data.train} | encoded
    names = {str(part.table.path): name for name, part in every.items()} | {
        str(data.train.table.path): "train"
    }
    labels, tokenizer = data.task.facts.get("labels"), encoder.tokenizer

    def check() -> Summary:
        train, *others = (part.table for part in every.values())
        findings, (in_test, *_) = check_tables(train, others, labels)
        lengths = [lengths_of_encoded(part, tokenizer) for part in every.values()]
        for part, each in zip(every.values(), lengths, strict=True):
            findings += check_unknown(part.table, each)
        return {
            "findings": [asdict(finding) for finding in findings],
            "tokens": lengths[0].facts,
            "in_test": {"same": len(in_test.same), "near": len(in_test.near)},
        }

    key = {"labels": labels, "unknown": special_ids(tokenizer).unk}
    key |= {name: content_hash(part) for name, part in every.items()}
    found = known_facts(key, check)
    findings = [Finding(**finding) for finding in found["findings"]]
    return findings, {
        "train": {
            "n": len(data.train),
            "tokens": found["tokens"],
            "duplicates_in_test": found["in_test"]["same"],
            "near_duplicates_in_test": found["in_test"]["near"],
        },
        "findings": [
            {"table": names[f.file], "kind": f.kind, "count": f.count, "message": f.message} for f in findings
        ],
    }


def calibrate(answers: np.ndarray, dev: Encoded) -> Summary:
    """The temperature of a classifier, and thresholds for abstaining, from logits (n, classes) of dev rows.

    Returns:
        `temperature`, 1 where dev has fewer than `FEWEST_ERRORS` errors; `dev_n`; and `abstain`: for each
        target accuracy above that without abstaining the `threshold` of the calibrated probability, as
        predictions write it, and the `dev_coverage` and `dev_accuracy` there.
    """
    labels = dev.targets["label"]
    correct = answers.argmax(1) == labels
    wrong, temperature = int((~correct).sum()), 1.0
    if wrong >= FEWEST_ERRORS:
        temperature = analysis.fit_temperature(answers, labels)
    else:
        say(f"{counted(wrong, 'error')} on dev: too few for a temperature; probabilities stay as trained")
    confidence = _as_written(answers, temperature)
    chosen = []
    for target in TARGETS:
        threshold = analysis.abstain_threshold(confidence, correct, target)
        if target > correct.mean() and threshold is not None:
            coverage, accuracy = analysis.answered(confidence, correct, threshold)
            chosen.append(
                {
                    "target": target,
                    "threshold": threshold,
                    "dev_coverage": coverage,
                    "dev_accuracy": accuracy,
                }
            )
    return {"temperature": temperature, "dev_n": len(labels), "abstain": chosen}


def review_classifier(answers: np.ndarray, test: Encoded, labels: list[str], fitted: Summary) -> Summary:
    """What logits (n, classes) of the test rows say of a classifier.

    Args:
        fitted: of `calibrate`, or empty.
    """
    truth, predicted = test.targets["label"], answers.argmax(1)
    correct = predicted == truth
    plain = analysis.reliability(analysis.confidences(answers), correct)
    calibration: Summary = {"ece": plain.error, "bins": _bins(plain)}
    told: Summary = {"calibration": calibration}
    if fitted:
        temperature = fitted["temperature"]
        confidence = analysis.confidences(answers, temperature)
        after = analysis.reliability(confidence, correct)
        calibration |= {
            "temperature": temperature,
            "dev_n": fitted["dev_n"],
            "ece_calibrated": after.error,
            "nll": analysis.negative_log_likelihood(answers, truth),
            "nll_calibrated": analysis.negative_log_likelihood(answers, truth, temperature),
            "bins_calibrated": _bins(after),
        }
        told["abstain"] = []
        written = _as_written(answers, temperature)
        for row in fitted["abstain"]:
            coverage, accuracy = analysis.answered(written, correct, row["threshold"])
            told["abstain"].append(row | {"test_coverage": coverage, "test_accuracy": accuracy})
        curve = analysis.selection(confidence, correct)
        points = np.unique(np.linspace(0, len(curve.kept) - 1, 40).round().astype(int))
        points = points[curve.kept[points] >= min(analysis.LEAST_KEPT, len(correct))]
        told["selection"] = {
            "coverage": curve.coverage[points].tolist(),
            "accuracy": curve.accuracy[points].tolist(),
        }
    if len(labels) <= LARGEST_MATRIX:
        counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(counts, (truth, predicted), 1)
        told["confusion"] = {"labels": labels, "counts": counts.tolist()}
    told["confused"] = [
        {"label": labels[label], "prediction": labels[guess], "rows": rows}
        for label, guess, rows in analysis.confusions(truth, predicted)[:SHOWN]
    ]
    return told


def _as_written(answers: np.ndarray, temperature: float) -> np.ndarray:
    """The probability of each row's predicted class as `predict` computes and writes it, and compares it with
    `--abstain-below`; float64 (n,)."""
    chances = probabilities(answers / np.float32(temperature)).max(1)
    return np.array([round(chance, PROBABILITY_DECIMALS) for chance in chances.tolist()])


def _bins(found: analysis.Reliability) -> dict[str, list[float]]:
    """The bins that hold anything."""
    filled = found.counts > 0
    return {
        "confidence": found.confidence[filled].tolist(),
        "accuracy": found.accuracy[filled].tolist(),
        "rows": found.counts[filled].tolist(),
    }


def worst_errors(task: Task, answers: Any, data: Encoded) -> list[Row]:
    """The rows whose prediction is wrong: the most confident errors first, or the largest.

    Where predictions have neither a probability nor a size, wrong spans or labels count, then the order of
    the table.
    """
    found = []
    for row, compared in enumerate(task.compared_rows(answers, data)):
        label, prediction = compared["gold"], compared["prediction"]
        if size := _wrongness(label, prediction):
            shown = {
                "row": data.table.number(row),
                "text": _text(data, row),
                "label": label,
                "prediction": prediction,
            }
            probability = compared.get("probability")
            if probability is not None:
                shown["probability"] = probability
            found.append((size if probability is None else probability, shown))
    found.sort(key=lambda item: -item[0])
    return [shown for _, shown in found[:SHOWN]]


def scores_by_label(task: Task, answers: Any, data: Encoded) -> Summary:
    """How well each label of spans, classes or sets of labels is predicted.

    Returns:
        `by_label`, for at most `LARGEST_MATRIX` labels, the most frequent first: `label`, `support` (how
        often it stands in the table), `precision`, `recall`, `f1`; and `never_predicted`, the labels that
        stand there and that no prediction has. Nothing of a task without labels.
    """
    labels = task.facts.get("labels") or []
    if not labels:
        return {}
    support, predicted, hits = Counter[str](), Counter[str](), Counter[str]()
    for compared in task.compared_rows(answers, data):
        wanted, found = (_labelled(compared[side]) for side in ("gold", "prediction"))
        for counts, items in ((support, wanted), (predicted, found), (hits, wanted & found)):
            counts.update(_label(item) for item in items)
    if not set(support) <= set(labels):  # joined labels, which stand for several
        return {}
    lost = [label for label in labels if support[label] and not predicted[label]]
    told: Summary = {"never_predicted": lost} if lost else {}
    if len(labels) > LARGEST_MATRIX:
        return told
    told["by_label"] = []
    for label in sorted(labels, key=lambda label: -support[label]):
        precision, recall = (hits[label] / max(n[label], 1) for n in (predicted, support))
        f1 = 2 * hits[label] / max(support[label] + predicted[label], 1)
        told["by_label"].append(
            {"label": label, "support": support[label], "precision": precision, "recall": recall, "f1": f1}
        )
    return told


def _labelled(value: Any) -> set[Any]:
    """What a row has: one label, several, or spans."""
    return {_plain(item) for item in value} if isinstance(value, list) else {value}


def _label(item: Any) -> str:
    return item.label if isinstance(item, LabelledSpan) else item


def _wrongness(label: Any, prediction: Any) -> float:
    """0 for a right prediction; else how wrong it is."""
    if isinstance(label, int | float) and isinstance(prediction, int | float):
        return abs(label - prediction)
    if isinstance(prediction, str) and isinstance(label, list):  # one of several right answers, or none
        return float(prediction not in (label or [""]))
    if isinstance(label, list) and isinstance(prediction, list):
        return float(len({_plain(item) for item in label} ^ {_plain(item) for item in prediction}))
    return float(label != prediction)


def _plain(item: Any) -> Any:
    """A span without its text and probability, or a name."""
    if isinstance(item, dict):
        return LabelledSpan(item["start"], item["end"], item["label"])
    return item


def _text(data: Encoded, row: int) -> str:
    table = data.table
    parts = [table.texts[row], *([table.second[row]] if table.second else [])]
    text = " / ".join(parts)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …"


def doubtful_labels(encoder: Encoder, train: Encoded, labels: list[str], runtime: Runtime) -> Summary:
    """Rows of train that are probably mislabelled (`analysis.likely_mislabelled`).

    A logistic regression on the encoder's frozen embeddings predicts each row from the other folds; equal
    texts share a fold. Where there are more than `DOUBTED` rows, that many are drawn.

    Returns:
        `mislabelled`, the worst rows, and `doubted`, their number and that of the rows checked; empty without
        scikit-learn, for few rows and for more than `MOST_CLASSES`.
    """
    if len(train) < FEWEST:
        return {}
    if line := missing("the search for mislabelled rows", "sklearn"):
        say(line)
        return {}
    if len(labels) > MOST_CLASSES:
        say(f"no search for mislabelled rows: it is for {MOST_CLASSES} classes or fewer, not {len(labels):,}")
        return {}
    data = drawn(train, DOUBTED, "doubtful labels")
    truth = data.targets["label"]
    folds = analysis.deal_folds(data.table.groups())
    features = text_vectors(encoder, data.examples, precision=runtime.precision)
    probabilities = analysis.out_of_fold(features, truth, len(labels), folds)
    doubted, guesses = analysis.likely_mislabelled(probabilities, truth)
    worst = [
        {
            "row": data.table.number(row),
            "text": _text(data, row),
            "label": labels[truth[row]],
            "likely": labels[guess],
            "label_probability": float(probabilities[row, truth[row]]),
            "likely_probability": float(probabilities[row, guess]),
        }
        for row, guess in zip(doubted[:SHOWN].tolist(), guesses[:SHOWN].tolist(), strict=True)
    ]
    accuracy = float((probabilities.argmax(1) == truth).mean())
    counts = {"rows": len(doubted), "checked": len(data), "accuracy": accuracy}
    return {"doubted": counts, "mislabelled": worst}


def review(
    data: TaskData, answers: Any, dev_answers: Any, encoder: Encoder, runtime: Runtime
) -> tuple[Summary, float | None]:
    """What summary.json says of the kept model beside its metrics, and its temperature if dev gives one.

    Args:
        answers: of the kept model, for test.
        dev_answers: for dev, of a model that did not train on dev; None without one.
        encoder: with its weights before training.
    """
    task, test, dev = data.task, data.test, data.dev
    if not isinstance(task, Classification):
        return {
            **scores_by_label(task, answers, test),
            "errors": worst_errors(task, answers, test),
        }, None
    fitted: Summary = {}
    if dev_answers is None or dev is None:
        say("no dev rows: no temperature and no threshold for abstaining (give --dev)")
    else:
        fitted = calibrate(dev_answers, dev)
    temperature = fitted.get("temperature")
    told = {
        **review_classifier(answers, test, task.labels, fitted),
        **scores_by_label(task, answers, test),
        **doubtful_labels(encoder, data.train, task.labels, runtime),
        "errors": worst_errors(task, answers if temperature is None else answers / temperature, test),
    }
    return told, temperature
