"""WordPiece of several Chinese characters: deterministic, spelled by its own pieces, read by transformers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.text.tokenizer_pipelines import LONGEST_PIECE, LONGEST_RUN
from brimful.corpus.tokenize.vocabulary_training import train

TEXTS = [
    *["这家酒店的服务员态度非常好，就是价格不便宜！"] * 5,
    *["不推荐这家酒店，服务态度不好。", "the hotel was great, the price was not"] * 5,
]


@pytest.fixture(scope="module")
def tokenizer():
    return train(TEXTS, 120, han="pieces")


def test_frequent_words_are_pieces_with_one_id_wherever_they_stand(tokenizer) -> None:
    first = tokenizer.encode("服务员态度好", add_special_tokens=False)
    later = tokenizer.encode("好服务员态度", add_special_tokens=False)
    assert max(len(piece) for piece in first.tokens) > 1
    assert sorted(first.ids) == sorted(later.ids)
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) <= 120
    assert all(len(piece) <= LONGEST_PIECE for piece in vocabulary if not piece.isascii())
    assert not any(piece.startswith("##") for piece in vocabulary)


def test_an_unknown_character_hides_nothing_but_itself(tokenizer) -> None:
    tokens = tokenizer.encode("酒店㐀的价格", add_special_tokens=False).tokens
    assert tokens.count("[UNK]") == 1
    assert "".join(token for token in tokens if token != "[UNK]") == "酒店的价格"


@given(text=st.text(alphabet="这家酒店的服务员态度非常好就是价格不便宜，！ ", max_size=5 * LONGEST_RUN))
def test_pieces_spell_the_text(tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text, add_special_tokens=False).tokens
    assert "".join(tokens) == "".join(text.split())
