"""The Summary of an export: how close it is to its model, and both beside other models on test rows."""

from typing import Any

import pytest

from brimful.exporting.summary_and_card import summarise_export

FACTS: dict[str, Any] = {"out": "de ploy", "source": "../finetune/model", "format": "onnx", "left_out": []}
FACTS |= {"model": "BertForSequenceClassification", "parameters": 3_456_789, "pieces": 8_000}
FACTS |= {"megabytes": 14.138210, "max_abs_hidden_difference": None, "max_abs_logit_difference": 1.52e-6}
GATE: dict[str, Any] = {"texts": 200, "file": "test.tsv", "loss_of": "accuracy", "loss": 0.005}
GATE |= {"instructions": "avx2", "precision": "fp32"}
GATE |= {"texts_per_second": 1234.5, "p50_ms": 0.512, "processor": "EPYC", "cores": 2}
MEASURED = {"metric": "accuracy", "before": 0.83, "after": 0.825, "standard_error": 0.004}
PRUNED = {"pieces_before": 21_128, "pieces_after": 8_000, "texts": 900, "used": 7_500}


def rows(facts: dict[str, Any]) -> dict[str, str]:
    return {row[0]: row[1] for row in summarise_export(facts).tables[0].rows}


def test_what_was_done_and_what_was_not_compared_is_said():
    assert summarise_export(FACTS).verdict == "Its outputs in float32 are the model's within 1.5e-06."
    alone = summarise_export(FACTS | {"max_abs_logit_difference": None})
    assert alone.verdict == "Not loaded with transformers, which is not installed."
    assert rows(FACTS)["Next"] == "python 'de ploy/example.py'"
    assert "Checkpoint" not in rows(FACTS)
    shown = rows(FACTS | {"step": 5_000, "pruned": PRUNED})
    assert shown["Checkpoint"] == "step 5,000"
    assert shown["Pieces"] == "21,128 before, 8,000 after; 900 texts use 7,500"


@pytest.mark.parametrize(("part", "compared"), [("test", True), ("given", True), ("dev", False)])
def test_an_export_is_compared_on_rows_that_no_training_chose_by(part, compared):
    gate = GATE | MEASURED | {"part": part, "task": "classification", "fingerprint": "f"}
    found = summarise_export(FACTS | {"gate": gate})
    assert (found.test is not None) is compared
    if compared:
        own, source = found.models
        assert (own.value, source.value) == (0.825, 0.83)
        assert own.pairs == {source.name: 0.004}
        assert source.folder == "../finetune/model"
