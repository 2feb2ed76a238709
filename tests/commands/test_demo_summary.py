"""The demo's Summary, of the published measurement: its table, and what may be chance."""

import json
from pathlib import Path

from brimful.commands.demo_results import summarise_demo

MEASURED = Path(__file__).parents[2] / "bench" / "results" / "demo.json"


def test_the_published_demo_names_the_best_model_and_what_may_be_chance() -> None:
    summary = summarise_demo(json.loads(MEASURED.read_text(encoding="utf-8")))
    verdict = summary.verdict.replace("\u202f", " ")
    assert verdict == (
        "Encoder, pretrained is the best, accuracy 84.3 ± 0.6 % on 3,436 test rows; Student, distilled is"
        " next, 0.2 ± 0.4 points behind, which may be chance."
    )
    assert [model.name for model in summary.models] == [
        "TF-IDF + logistic regression",
        "Encoder, random weights",
        "Encoder, pretrained",
        "Student, not distilled",
        "Student, distilled",
    ]
    assert summary.models[0].role == "baseline"
    rows = {row[0]: row[1] for row in summary.tables[0].rows}
    assert rows["Token slots with real tokens"].startswith("99.77")
    assert rows["From raw text to report"].replace("\u202f", " ") == "6 min 51 s"
