"""Masks: rates, whole words, 80/10/10, and that they hang on sequence and position alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.data.batch import IGNORED
from brimful.data.masking import MaskingConfig, Vocabulary, mask_tokens, prediction_slots
from brimful.randomness import derive_key, hash_words

CLS, SEP, MASK, FIRST = 2, 3, 4, 5
SIZE = 1000
VOCABULARY = Vocabulary(MASK, np.arange(FIRST, SIZE, dtype=np.int32))


class Text:
    """Random sequences with special tokens, as `mask_tokens` wants them."""

    def __init__(self, seed: int, lengths: list[int], longest_word: int = 3) -> None:
        draw = np.random.default_rng(seed)
        self.lengths = lengths
        T = sum(lengths)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        self.tokens = draw.integers(FIRST, SIZE, T).astype(np.int32)
        self.tokens[begins], self.tokens[ends - 1] = CLS, SEP
        self.positions = (np.arange(T) - np.repeat(begins, lengths)).astype(np.int32)
        word_lengths = draw.integers(1, longest_word + 1, T)
        starts = np.zeros(T, dtype=bool)
        starts[np.cumsum(word_lengths)[np.cumsum(word_lengths) < T]] = True
        starts[begins], starts[begins + 1], starts[ends - 1] = True, True, True
        self.word_starts = starts
        self.maskable = (self.tokens != CLS) & (self.tokens != SEP)
        self.sequence = np.repeat(np.arange(len(lengths)), lengths)

    def mask(self, key: np.uint64, *, slots: int | None = None, **config: Any) -> tuple:
        keys = hash_words(key, self.sequence)
        return mask_tokens(
            self.tokens,
            self.positions,
            self.word_starts,
            self.maskable,
            keys,
            MaskingConfig(**config),
            VOCABULARY,
            slots,
        )

    def reordered(self, order: np.ndarray) -> "Text":
        index = np.concatenate([np.flatnonzero(self.sequence == i) for i in order])
        other = object.__new__(Text)
        other.lengths = [self.lengths[i] for i in order]
        for name in ("tokens", "positions", "word_starts", "maskable", "sequence"):
            setattr(other, name, getattr(self, name)[index])
        return other

    @property
    def words(self) -> np.ndarray:
        """A number for each word; each special token is one of its own."""
        return np.cumsum(self.word_starts | ~self.maskable) - 1


def big_text(seed: int) -> Text:
    return Text(seed, np.random.default_rng(seed).integers(3, 129, 1500).tolist())


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize("rate", [0.15, 0.3, 0.8])
def test_rate(rate: float, whole_words: bool, seed: int) -> None:
    text = big_text(seed)
    _, positions, _, _ = text.mask(derive_key(seed), rate=rate, whole_words=whole_words)
    sizes = np.bincount(text.words[text.maskable]) if whole_words else np.ones(text.maskable.sum())
    deviation = (rate * (1 - rate) * float((sizes.astype(float) ** 2).sum())) ** 0.5
    assert abs(len(positions) - rate * text.maskable.sum()) < 6 * deviation


def test_rates_of_none_and_all(seed: int) -> None:
    text = big_text(seed)
    shown, positions, labels, _ = text.mask(derive_key(seed), rate=0.0)
    assert len(positions) == len(labels) == 0
    assert np.array_equal(shown, text.tokens)
    _, positions, _, _ = text.mask(derive_key(seed), rate=1.0)
    assert np.array_equal(positions, np.flatnonzero(text.maskable))


def test_words_are_masked_whole(seed: int) -> None:
    text = big_text(seed)
    _, positions, _, _ = text.mask(derive_key(seed))
    words = text.words
    assert np.array_equal(np.flatnonzero(np.isin(words, words[positions])), positions)
    _, positions, _, _ = text.mask(derive_key(seed), whole_words=False)
    assert len(np.flatnonzero(np.isin(words, words[positions]))) > 1.2 * len(positions)


@pytest.mark.parametrize("slots", [None, 100, 50_000])
def test_what_is_shown_and_asked_for(seed: int, slots: int | None) -> None:
    text = big_text(seed)
    shown, positions, labels, _ = text.mask(derive_key(seed), slots=slots)
    used = labels != IGNORED
    assert not used[used.sum() :].any()
    assert (positions[~used] == 0).all()
    positions, labels = positions[used], labels[used]
    assert text.maskable[positions].all()
    assert np.array_equal(positions, np.unique(positions))
    assert np.array_equal(labels, text.tokens[positions])
    others = np.setdiff1d(np.arange(len(text.tokens)), positions)
    assert np.array_equal(shown[others], text.tokens[others])
    assert shown.dtype == np.int32
    assert not np.isin(shown[positions], [0, 1, CLS, SEP]).any()


@pytest.mark.parametrize("shares", [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.3, 0.3)])
def test_shares(shares: tuple[float, float], seed: int) -> None:
    text = big_text(seed)
    shown, positions, _, _ = text.mask(derive_key(seed), mask_share=shares[0], random_share=shares[1])
    n = len(positions)
    masked = shown[positions] == MASK
    kept = shown[positions] == text.tokens[positions]
    accidents = shares[1] / len(VOCABULARY.ordinary)
    for count, share in ((masked.sum(), shares[0]), (kept.sum(), 1 - sum(shares) + accidents)):
        assert abs(count - n * share) <= 6 * (n * share * (1 - share)) ** 0.5 + 1e-6 * n
    # Random tokens come from the whole vocabulary, evenly, and independently within a word.
    swapped = shown[positions][~masked & ~kept]
    if len(swapped) > 1000:
        halves = np.bincount((swapped - FIRST) * 8 // (SIZE - FIRST), minlength=8)
        assert np.abs(halves - len(swapped) / 8).max() < 6 * (len(swapped) / 8) ** 0.5
    same_word = np.diff(text.words[positions]) == 0
    if shares == (0.8, 0.1):
        both = (masked[1:] & masked[:-1] & same_word).sum()
        pairs = same_word.sum()
        assert abs(both - 0.64 * pairs) < 8 * (0.64 * 0.36 * pairs) ** 0.5


@given(
    st.lists(st.integers(3, 30), min_size=1, max_size=12),
    st.integers(0, 2**32),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_masks_do_not_depend_on_the_packing(
    lengths: list[int], seed: int, shuffle: Any, whole_words: bool
) -> None:
    text = Text(seed, lengths)
    order = list(range(len(lengths)))
    shuffle.shuffle(order)
    parts: list[dict[int, tuple]] = []
    rows = [order[: len(order) // 2], order[len(order) // 2 :]]
    for packing in ([list(range(len(lengths)))], [order], rows, [[i] for i in order]):
        seen = {}
        for row in packing:
            if not row:
                continue
            part = text.reordered(np.array(row))
            shown, positions, labels, _ = part.mask(derive_key(seed), whole_words=whole_words, rate=0.4)
            for index in row:
                own = part.sequence == index
                asked = own[positions]
                seen[index] = (
                    shown[own].tolist(),
                    part.positions[positions[asked]].tolist(),
                    labels[asked].tolist(),
                )
        parts.append(seen)
    assert all(part == parts[0] for part in parts)


def test_another_epoch_has_other_masks(seed: int) -> None:
    text = big_text(seed)
    first, second = (
        np.isin(np.arange(len(text.tokens)), text.mask(derive_key(seed, "masking", epoch))[1])[text.maskable]
        for epoch in (0, 1)
    )
    both = (first & second).mean()
    assert abs(both - 0.09) < 0.01  # 0.3 squared: as good as independent


@given(
    st.lists(st.integers(3, 40), min_size=1, max_size=10),
    st.integers(0, 2**32),
    st.integers(0, 60),
    st.booleans(),
)
def test_what_does_not_fit_is_dropped_by_whole_words(
    lengths: list[int], seed: int, slots: int, whole_words: bool
) -> None:
    text = Text(seed, lengths)
    key = derive_key(seed)
    shown_all, all_positions, _, none = text.mask(key, rate=0.5, whole_words=whole_words)
    assert none == 0
    shown, positions, labels, dropped = text.mask(key, rate=0.5, whole_words=whole_words, slots=slots)
    assert positions.shape == labels.shape == (slots,)
    kept = positions[labels != IGNORED]
    assert dropped == len(all_positions) - len(kept)
    assert np.isin(kept, all_positions).all()
    assert np.array_equal(shown[kept], shown_all[kept])
    gone = np.setdiff1d(np.arange(len(shown)), kept)
    assert np.array_equal(shown[gone], text.tokens[gone])
    if len(all_positions) <= slots:
        assert dropped == 0
    elif whole_words:
        words = text.words
        assert np.array_equal(np.flatnonzero(np.isin(words, words[kept])), kept)
        assert len(kept) > slots - 3  # at most one word of three tokens fell over the edge
    else:
        assert len(kept) == slots


@pytest.mark.parametrize("rate", [0.15, 0.3, 0.5])
@pytest.mark.parametrize("tokens", [128, 1024, 65_536])
def test_slots_almost_always_suffice(rate: float, tokens: int, seed: int) -> None:
    slots = prediction_slots(tokens, rate)
    assert slots % 8 == 0
    assert tokens * rate <= slots <= tokens
    text = Text(seed, [min(128, tokens)] * (tokens // min(128, tokens)))
    assert all(text.mask(derive_key(seed, i), rate=rate, slots=slots)[3] == 0 for i in range(20))


def test_all_slots_for_all_tokens() -> None:
    assert prediction_slots(1000, 1.0) == 1000
    assert prediction_slots(1000, 0.0) == 0
