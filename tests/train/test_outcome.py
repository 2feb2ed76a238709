"""What trainings say in their Summary: their loss, and whether they overfit."""

from typing import Any

import pytest

from brimful.stages.pretrain import summarise_pretraining

FACTS: dict[str, Any] = {
    "tokens": 500_000,
    "tokens_per_second": 5000.0,
    "seconds": 100.0,
    "parameters": 5_243_392,
    "training_loss": 4.4,
    "validation": {"loss": 4.487, "accuracy": 0.309, "perplexity": 88.9},
    "packing": {"efficiency": 0.9963, "padded_efficiency": 0.4127},
    "verdict": {"unigram_entropy": 6.9, "loss_is_normal": True},
}


def rows(facts: dict[str, Any]) -> dict[str, str]:
    (table,) = summarise_pretraining(facts).tables
    return {row[0]: row[1] for row in table.rows}


def test_a_pretraining_shows_its_loss_and_how_full_its_rows_were() -> None:
    verdict = summarise_pretraining(FACTS).verdict
    assert all(part in verdict for part in ("4.49", "normal", "6.90"))
    assert rows(FACTS)["Real tokens in a row, if padded"].startswith("41.3")
    abnormal = FACTS | {"verdict": FACTS["verdict"] | {"loss_is_normal": False}}
    assert "optimizer.learning_rate" in summarise_pretraining(abnormal).verdict


@pytest.mark.parametrize(("training", "overfits"), [(4.4, False), (3.5, True), (None, False)])
def test_a_model_that_knows_its_own_rows_better_overfits(training: float | None, overfits: bool) -> None:
    assert ("Overfits" in rows(FACTS | {"training_loss": training})) is overfits
