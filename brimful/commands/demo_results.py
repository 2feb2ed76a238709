"""What the demo measures and shows: its models on the same test reviews, TF-IDF among them."""

import json
import time
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.base.numbers import accuracy_error, duration, percent, short
from brimful.base.summary import (
    MeasuredOn,
    ModelResult,
    Summary,
    judge_models,
    make_facts_table,
)
from brimful.commands.demo_reviews import Reviews
from brimful.exporting.runtimes import onnx_session
from brimful.hf.model_folder import ModelFolder
from brimful.serving.opened import graph_file
from brimful.stages.distil import size_of
from brimful.tasks.judging.baselines import TFIDF_STRENGTHS
from brimful.tasks.judging.speed import median_ms, speeds_of
from brimful.tasks.model import load_task_model

TIMED_TEXTS = 200
"""Test reviews that speeds are measured on."""


class DemoModel(NamedTuple):
    """A model of the final table: its name, its run, and the key of its shape's size and speed."""

    name: str
    run: str
    shape: str


MODELS = {
    "tfidf": DemoModel("TF-IDF + logistic regression", "", "tfidf"),
    "random_init": DemoModel("Encoder, random weights", "finetune-random", "teacher"),
    "pretrained": DemoModel("Encoder, pretrained", "finetune", "teacher"),
    "student_undistilled": DemoModel("Student, not distilled", "student-undistilled", "student"),
    "student": DemoModel("Student, distilled", "distil", "student"),
    "general_teacher": DemoModel("General encoder, fine-tuned", "general-teacher", "general_teacher"),
    "general_student": DemoModel("Its student of 4 layers", "general-student", "general_student"),
    "general_small": DemoModel("Its student of 4 layers, 168 wide", "general-small", "general_small"),
}
"""By key in `accuracy`."""


def measure_models(out: Path, reviews: Reviews, served: Mapping[str, str]) -> dict[str, Any]:
    """The accuracies of all models on the same test reviews, their differences, sizes and speeds.

    Args:
        out: the folder of the demo.
        served: the runs whose models are exported and timed, by the keys of their shapes.
    """
    tfidf_right, tfidf = train_tfidf(reviews)
    right = {"tfidf": tfidf_right}
    for key, model in MODELS.items():
        predictions = out / model.run / "predictions.jsonl"
        if model.run and predictions.exists():
            right[key] = read_right_answers(predictions)
    comparisons = {}
    for first, second in permutations(right, 2):
        gains = right[first].astype(float) - right[second]
        error = float(gains.std(ddof=1) / len(gains) ** 0.5)
        pair = {"difference": float(gains.mean()), "standard_error": error}
        comparisons[f"{first}_minus_{second}"] = pair
    n = len(reviews.test)
    accuracy = {key: float(values.mean()) for key, values in right.items()}
    texts = [text for text, _ in reviews.test[:TIMED_TEXTS]]
    return {
        "accuracy": accuracy,
        "accuracy_standard_error": {key: accuracy_error(share, n) for key, share in accuracy.items()},
        "comparisons": comparisons,
        "test": {"n": n},
        "models": {"tfidf": tfidf} | {shape: measure_speed(out, run, texts) for shape, run in served.items()},
    }


def measure_speed(out: Path, run: str, texts: Sequence[str]) -> dict[str, float]:
    """What a run's model takes: one text with onnxruntime, and many together, packed, in float32."""
    exported = out / "export" / f"{run}-onnx"
    model = load_task_model(ModelFolder.open(str(out / run), "model"))
    speed = speeds_of({"": size_of(model).answer}, model.task.from_texts(list(texts), None))[""]
    return {
        "parameters": model.parameters,
        "size_mb": graph_file(ModelFolder(exported)).stat().st_size / 1e6,
        "latency_ms": time_onnx(exported, texts),
        "texts_per_second": speed.texts_per_second,
    }


def train_tfidf(reviews: Reviews) -> tuple[np.ndarray, dict[str, float]]:
    """TF-IDF of characters and character pairs, with logistic regression on the same labels.

    Returns:
        bool (test,), which test reviews it gets right; and its size and speed. The strength of regularisation
        is chosen on a fifth of the labelled reviews, like the encoders' learning rates.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, ShuffleSplit
    from sklearn.pipeline import make_pipeline

    model = GridSearchCV(
        make_pipeline(
            TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(max_iter=1000),
        ),
        {"logisticregression__C": list(TFIDF_STRENGTHS)},
        cv=ShuffleSplit(1, test_size=0.2, random_state=0),
    )
    texts, labels = zip(*reviews.labelled, strict=True)
    model.fit(texts, labels)
    test_texts, test_labels = zip(*reviews.test, strict=True)
    started = time.perf_counter()
    right = np.array(model.predict(test_texts)) == np.array(test_labels)
    seconds = time.perf_counter() - started
    vectorizer, classifier = (step for _, step in model.best_estimator_.steps)
    size = classifier.coef_.nbytes + vectorizer.idf_.nbytes
    size += sum(len(term.encode()) for term in vectorizer.vocabulary_)
    return right, {
        "parameters": classifier.coef_.size,
        "size_mb": size / 1e6,
        "latency_ms": median_ms(lambda text: model.predict([text]), test_texts[:TIMED_TEXTS]),
        "texts_per_second": len(test_texts) / seconds,
    }


def time_onnx(folder: Path, texts: Sequence[str]) -> float:
    """Median milliseconds from text to logits with onnxruntime, for one review at a time, with tokenizing."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    session = onnx_session(graph_file(ModelFolder(folder)))

    def call(text: str) -> None:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        session.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})

    return median_ms(call, texts)


def summarise_demo(facts: Mapping[str, Any]) -> Summary:
    """The models side by side on the test reviews, packing, and the time that all took.

    Args:
        facts: what summary.json holds.
    """
    test = MeasuredOn("accuracy", facts["test"]["n"], "the demo's test reviews", share=True)
    pairs: dict[str, dict[str, float]] = {key: {} for key in MODELS}
    for names, pair in facts["comparisons"].items():
        first, second = names.split("_minus_")
        pairs[first][MODELS[second].name] = pair["standard_error"]
    models = []
    for key in MODELS:
        if key not in facts["accuracy"]:
            continue
        costs = facts["models"].get(MODELS[key].shape, {})
        models.append(
            ModelResult(
                name=MODELS[key].name,
                value=facts["accuracy"][key],
                error=facts["accuracy_standard_error"][key],
                pairs=pairs[key],
                role="baseline" if key == "tfidf" else "model",
                milliseconds=costs.get("latency_ms"),
                texts_per_second=costs.get("texts_per_second"),
                megabytes=costs.get("size_mb"),
                parameters=costs.get("parameters"),
            )
        )
    packing = facts["packing"]
    result = {
        "Token slots with real tokens": percent(packing["efficiency"]),
        f"If padded to {packing['max_length']}": percent(packing["padded_efficiency"]),
        "Real tokens a second in pretraining": short(facts["pretrain"]["tokens_per_second"]),
        "From raw text to report": duration(facts["seconds"]["total"]),
        "Full report": facts["report"],
    }
    tables = make_facts_table("Result", result)
    return Summary("Demo", judge_models(test, models), tables, test=test, models=models)


def read_right_answers(path: Path) -> np.ndarray:
    """bool (rows,): which rows of a file of predictions (predictions.jsonl of a run) are right.

    Raises:
        BrimfulError: an earlier version wrote it.
    """
    values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if any("gold" not in value for value in values):
        raise BrimfulError(f"{path} has the key 'label' of an older version, now 'gold': make the run again")
    return np.array([value["gold"] == value["prediction"] for value in values])
