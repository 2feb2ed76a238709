"""What the demo measures beside Brimful's own metrics: a classical baseline, and latencies."""

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.demonstration.reviews import Reviews
from brimful.exporting.runtimes import onnx_session
from brimful.hf.model_folder import ModelFolder
from brimful.serving.opened import graph_file
from brimful.stages.distil import size_of
from brimful.tasks.judging.baselines import TFIDF_STRENGTHS
from brimful.tasks.judging.speed import medians_ms, speeds_of
from brimful.tasks.model import load_task_model


def tfidf_baseline(reviews: Reviews) -> tuple[np.ndarray, dict[str, float]]:
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
        "latency_ms": median_ms(lambda text: model.predict([text]), list(test_texts[:200])),
        "texts_per_second": len(test_texts) / seconds,
    }


def onnx_latency(folder: Path, texts: list[str]) -> float:
    """Median milliseconds from text to logits with onnxruntime, for one review at a time, with tokenizing."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    session = onnx_session(graph_file(ModelFolder(folder)))

    def call(text: str) -> None:
        encoding = tokenizer.encode(text)
        ids = np.array([encoding.ids], dtype=np.int64)
        session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})

    return median_ms(call, texts)


def packed_rate(run: Path, texts: list[str]) -> float:
    """Reviews a second of a run's model, many together, packed, on the CPU in float32."""
    model = load_task_model(ModelFolder.open(str(run), "model"))
    return speeds_of({"": size_of(model).answer}, model.task.from_texts(texts, None))[""].texts_per_second


def median_ms(call: Callable[[str], object], texts: Sequence[str]) -> float:
    """Median milliseconds of a call over texts, after ten of them."""
    return medians_ms([[partial(call, text)] for text in texts], 10, math.inf)[0]


def right_answers(run: Path) -> np.ndarray:
    """bool (test,): which test reviews a run's model got right."""
    path = run / "predictions.jsonl"
    values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if any("gold" not in value for value in values):
        raise BrimfulError(f"{path} has the key 'label' of an older version, now 'gold': make the run again")
    return np.array([value["gold"] == value["prediction"] for value in values])
