"""Warnings about a tokenizer that does not fit the text."""

import pytest

from brimful.corpus.tokenize.vocabulary_fit import list_fit_warnings


def script(characters: int, tokens: int, unknown: int = 0) -> dict[str, int]:
    return {"characters": characters, "tokens": tokens, "unknown": unknown}


@pytest.mark.parametrize(
    ("counts", "warnings"),
    [
        ({"Latin": script(9000, 2200), "Han": script(9000, 9000, 90), "other": script(9, 8)}, []),
        (
            {"Latin": script(9000, 2000), "Han": script(1000, 1000, 1000)},
            ["10.0% of the text", "100.0% of the Han"],
        ),
        ({"Latin": script(10_000, 5500), "other": script(1000, 1000)}, ["0.55 tokens per Latin"]),
        ({"Latin": script(10_000, 10_000)}, []),  # a tokenizer of characters
        ({"Hangul": script(10_000, 25_000), "other": script(1000, 1000)}, ["2.50 tokens per Hangul"]),
        # A script with less than 0.1 % of the characters is not judged.
        ({"Latin": script(1_000_000, 220_000), "Han": script(900, 900, 900)}, []),
        ({"Latin": script(1_000_000, 220_000), "Han": script(1100, 1100, 1100)}, ["100.0% of the Han"]),
    ],
)
def test_warnings_of_fit(counts: dict[str, dict[str, int]], warnings: list[str]) -> None:
    found = list_fit_warnings(counts)
    assert len(found) == len(warnings)
    for line, start in zip(found, warnings, strict=True):
        assert line.startswith(start)
