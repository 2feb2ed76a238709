"""Of a very long text only the beginning is tokenized, and its first tokens are those of the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.text import long_texts
from brimful.corpus.tokenize.vocabulary_training import train
from brimful.data.examples import encode_texts

WORDS = ["the", "room", "was", "clean", "这本书很好看", "价格太高", "naïve", "Wörter", "e\u0301"]
WORDS += ["x" * 300, "...", "🙂"]
TOKENIZER = train(WORDS * 20, 120)
TEXTS = st.lists(st.sampled_from([*WORDS, " ", "\n", "\u3000", ""]), min_size=1, max_size=400).map("".join)


@given(TEXTS, TEXTS, st.integers(4, 40), st.booleans())
def test_the_same_tokens(first: str, second: str, length: int, pair: bool) -> None:
    expected = encode_texts(TOKENIZER, [first], [second] if pair else None, max_length=length, pad=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brimful.data.examples.WHOLE_TEXT_CHARACTERS", 20)
        patch.setattr(long_texts, "WHOLE_TEXT_CHARACTERS", 20)
        made = encode_texts(TOKENIZER, [first], [second] if pair else None, max_length=length, pad=0)
    assert np.array_equal(made.tokens[0], expected.tokens[0])
    assert made.cut == expected.cut


def test_a_text_of_a_hundred_million_characters_is_cut_quickly() -> None:
    text = "the room was clean " * 5_000_000
    part = long_texts.cut_text(TOKENIZER, text, 512, "a text")
    assert len(part) < 100_000
    assert encode_texts(TOKENIZER, [text], max_length=512, pad=0).cut == 1


@pytest.mark.parametrize(("text", "overlap"), [("x" * 700, None), ("the " * 200, 4)])
def test_what_cannot_be_cut_is_refused(
    text: str, overlap: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brimful.data.examples.WHOLE_TEXT_CHARACTERS", 20)
    monkeypatch.setattr(long_texts, "WHOLE_TEXT_CHARACTERS", 20)
    monkeypatch.setattr(long_texts, "MAX_TEXT_CHARACTERS", 640)
    with pytest.raises(BrimfulError, match=r"row 1 has [\d,]+ characters, more than"):
        encode_texts(TOKENIZER, [text], max_length=16, pad=0, overlap=overlap, where=lambda n: f"row {n + 1}")
