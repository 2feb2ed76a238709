"""The demo's Summary: its table, and what may be chance."""

from brimful.commands.demo_results import summarise_demo

ACCURACY = {
    "random_init": 0.779,
    "pretrained": 0.843,
    "student_undistilled": 0.832,
    "student": 0.841,
    "tfidf": 0.819,
}
COSTS = {"parameters": 4_740_000, "megabytes": 19.3, "latency_ms": 1.88, "texts_per_second": 420.0}
FACTS = {
    "accuracy": ACCURACY,
    "accuracy_standard_error": dict.fromkeys(ACCURACY, 0.006),
    "comparisons": {
        "pretrained_minus_student": {"difference": 0.002, "standard_error": 0.004},
        "pretrained_minus_tfidf": {"difference": 0.024, "standard_error": 0.006},
    },
    "models": {**dict.fromkeys(ACCURACY, COSTS), "tfidf": {"latency_ms": 0.74}},
    "test": {"n": 3436},
    "packing": {"efficiency": 0.9977, "padded_efficiency": 0.44, "max_length": 128},
    "pretrain": {"tokens_per_second": 26_000.0},
    "report": "runs/demo/report.html",
    "seconds": {"total": 411.0},
}


def test_the_demo_names_the_best_model_and_what_may_be_chance() -> None:
    summary = summarise_demo(FACTS)
    verdict = summary.verdict.replace("\u202f", " ")
    assert verdict == (
        "Encoder, pretrained is the best, accuracy 84.3 ± 0.6 % on 3,436 test rows; Student, distilled is"
        " next, 0.2 ± 0.4 points behind, which may be chance."
    )
    names = [model.name for model in summary.models]
    assert names == [
        "Encoder, random weights",
        "Encoder, pretrained",
        "Student, not distilled",
        "Student, distilled",
        "TF-IDF + linear",
    ]
    assert summary.models[-1].role == "baseline"
    assert summary.models[1].pairs == {"Student, distilled": 0.004, "TF-IDF + linear": 0.006}
    rows = {row[0]: row[1] for row in summary.tables[0].rows}
    assert rows["Token slots with real tokens"].startswith("99.77")
    assert rows["From raw text to report"].replace("\u202f", " ") == "6 min 51 s"
