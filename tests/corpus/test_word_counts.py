"""Word counts are those of the pre-tokenizer, and bounded."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from brimful.corpus.tokenize import word_counts
from brimful.corpus.tokenize.word_counts import WordCounts, thinned
from brimful.text.tokenizer_pipelines import metaspace

TOKENIZER = metaspace(models.Unigram(), lowercase=True, han="characters")


@given(st.lists(st.text(alphabet="ab ,中文+", max_size=30), max_size=5))
def test_counts_are_those_of_the_pre_tokenizer(texts: list[str]) -> None:
    texts = [TOKENIZER.normalizer.normalize_str(text) for text in texts]
    words = WordCounts(TOKENIZER.pre_tokenizer)
    words.read(texts)
    pieces = [word for text in texts for word, _ in TOKENIZER.pre_tokenizer.pre_tokenize_str(text)]
    assert words.counts() == Counter(pieces)


def test_rare_words_are_forgotten_and_overlong_ones_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_counts, "MOST_CHARACTERS", 30)
    words = WordCounts(TOKENIZER.pre_tokenizer)
    words.read(["often often often", "z" * 101, *(f"rare{number}" for number in range(20))])
    assert words.counts() == {"▁often": 3}


@given(st.lists(st.text(max_size=9), min_size=1), st.integers(1, 60))
def test_thinned_texts_are_evenly_taken_and_bounded(texts: list[str], most: int) -> None:
    kept = thinned(iter(texts), most)
    stride = next(2**power for power in range(9) if texts[:: 2**power] == kept)
    assert len(kept) == 1 or sum(map(len, kept)) <= most
    assert stride == 1 or sum(map(len, texts[:: stride // 2])) > most
