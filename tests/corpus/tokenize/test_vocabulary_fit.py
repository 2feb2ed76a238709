"""Warnings about a tokenizer that does not fit the text."""

import pytest

from brimful.corpus.tokenize.vocabulary_fit import list_fit_warnings


def script(characters: int, tokens: int, unknown: int = 0) -> dict[str, int]:
    return {"characters": characters, "tokens": tokens, "unknown": unknown}


def test_a_tokenizer_that_fits() -> None:
    assert list_fit_warnings({}) == []
    counts = {"Latin": script(9000, 2200), "Han": script(9000, 9000, 90), "other": script(9, 8)}
    assert list_fit_warnings(counts) == []


def test_unknown_tokens() -> None:
    everywhere, han = list_fit_warnings({"Latin": script(9000, 2000), "Han": script(1000, 1000, 1000)})
    assert everywhere.startswith("33.3% of all tokens are unknown")
    assert han.startswith("100.0% of the Han tokens are unknown")


@pytest.mark.parametrize(("name", "tokens"), [("Latin", 5500), ("Han", 30000), ("Hangul", 25000)])
def test_text_that_is_spelled_out(name: str, tokens: int) -> None:
    (warning,) = list_fit_warnings({name: script(10_000, tokens), "other": script(1000, 1000)})
    assert f"{tokens / 10_000:.2f} tokens per {name} character" in warning


def test_a_rare_script_is_not_judged() -> None:
    assert list_fit_warnings({"Latin": script(1_000_000, 220_000), "Han": script(900, 900, 900)}) == []
    assert len(list_fit_warnings({"Latin": script(1_000_000, 220_000), "Han": script(1100, 1100, 1100)})) == 1
