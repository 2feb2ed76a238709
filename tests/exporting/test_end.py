"""The last lines of `brimful export`."""

from typing import Any

import pytest

from brimful.exporting.end import show_export

RESULT = {
    "out": "de ploy",
    "bytes": 14_938_210,
    "megabytes": 14.138210,
    "format": "onnx",
    "model": "BertForSequenceClassification",
    "parameters": 3_456_789,
    "pieces": 8_000,
    "left_out": [],
    "max_abs_hidden_difference": None,
    "max_abs_logit_difference": 1.52e-6,
}
GATE = {"texts": 200, "file": "test.tsv", "loss_of": "accuracy", "loss": 0.005}
GATE |= {"texts_per_second": 1234.5, "p50_ms": 0.512, "processor": "EPYC", "cores": 2}
SPEED = "  1,234 texts a second, 0.512 ms for one, on 2 cores of EPYC"
MEASURED = {"metric": "accuracy", "before": 0.83, "after": 0.825, "standard_error": 0.004}
PRUNED = {"pieces_before": 21_128, "pieces_after": 8_000, "texts": 900, "used": 7_500}
UNSEEN = {"texts": 45, "tokens_before": 900, "tokens_after": 905, "unknown_before": 3, "unknown_after": 4}


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, []),
        (
            {"max_abs_hidden_difference": 2e-7},
            ["  its hidden states are those of transformers within 2.0e-07"],
        ),
        ({"pruned": PRUNED | {"unseen": None}}, ["  21,128 pieces -> 8,000, by 900 texts that use 7,500"]),
        (
            {"pruned": PRUNED | {"unseen": UNSEEN}},
            [
                "  21,128 pieces -> 8,000, by 900 texts that use 7,500",
                "  unknown tokens of 45 texts held out: 3 of 900 -> 4 of 905",
            ],
        ),
        (
            {"gate": GATE | MEASURED},
            ["  accuracy goes from 0.8300 to 0.8250 (-0.0050 ± 0.0040) on 200 texts of test.tsv", SPEED],
        ),
        (
            {"gate": GATE | {"in_int8": 10, "in_bf16": ["layers.0.mlp", "layers.1.mlp"]}},
            [
                "  accuracy is 0.9950 on 200 texts of test.tsv",
                SPEED,
                "  10 products in int8; in a wider format: layers.0.mlp, layers.1.mlp",
            ],
        ),
    ],
)
def test_an_export_ends_in_sentences(
    more: dict[str, Any], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    show_export(RESULT | more)
    assert capsys.readouterr().out.splitlines() == [
        "de ploy: onnx, 14.1 MB; its outputs are the model's within 1.5e-06",
        "  BertForSequenceClassification, 3,456,789 parameters, 8,000 pieces",
        *lines,
        "next: python 'de ploy/example.py'",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"format": "onnx-int8"}, "before it is rounded, its outputs are the model's within 1.5e-06\n"),
        ({"max_abs_logit_difference": None}, "not loaded with transformers, which is not installed\n"),
        ({"step": 5_000, "averaged": True}, " 8,000 pieces; step 5,000, averaged weights\n"),
        ({"step": 50, "averaged": False}, " 8,000 pieces; step 50\n"),
    ],
)
def test_what_was_not_compared_or_is_a_checkpoint_is_said(
    more: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_export(RESULT | more)
    assert said in capsys.readouterr().out
