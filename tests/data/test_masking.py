"""Masks: the same bits as a plain reference, and slots."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.randomness import derive_key, hash_words
from brimful.base.types import IGNORED
from brimful.data.config import MaskingConfig, Unit
from brimful.data.masking import MaskingVocabulary, count_prediction_slots, mask_tokens

MASK = 4
SPECIAL = [0, 2, 3, MASK]
ORDINARY = np.arange(5, 200, 3, dtype=np.int32)
"""Not among the tokens of texts, so that random tokens are recognised."""
VOCABULARY = MaskingVocabulary(MASK, ORDINARY)


@dataclasses.dataclass
class Text:
    """Sequences as `mask_tokens` wants them."""

    tokens: np.ndarray
    offsets: np.ndarray
    word_starts: np.ndarray
    maskable: np.ndarray
    identity: np.ndarray

    def keys(self, key: np.uint64) -> np.ndarray:
        return hash_words(key, self.identity)

    def mask(
        self, key: np.uint64, *, rate: float = 0.15, slots: int | None = None, **config: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """What is shown, the positions and labels, and how many are dropped."""
        shown = self.tokens.copy()
        arrays = (self.offsets, self.word_starts, self.maskable, self.keys(key))
        masked = mask_tokens(shown, *arrays, MaskingConfig(**config), VOCABULARY, rate=rate, slots=slots)
        return shown, *masked


def make_text(seed: int, lengths: list[int], *, inner: float) -> Text:
    """Sequences that mostly begin and end with special tokens; of the others, the fraction `inner` is."""
    draw = np.random.default_rng(seed)
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    T = int(offsets[-1])
    tokens = draw.integers(201, 500, T).astype(np.int32)
    special = draw.random(T) < inner
    ends = np.concatenate([offsets[:-1], offsets[1:] - 1])
    special[ends] = draw.random(len(ends)) < 0.8
    tokens[special] = draw.choice(SPECIAL, special.sum())
    starts = np.zeros(T, dtype=bool)
    begins = np.cumsum(draw.integers(1, 4, T))
    starts[begins[begins < T]] = True
    return Text(tokens, offsets, starts, ~special, draw.integers(0, 1 << 60, len(lengths)))


def splitmix(word: int) -> int:
    """Steele, Lea and Flood (2014): one step of SplitMix64 from this state."""
    x = (word + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def upper(draw: int) -> float:
    return (draw >> 32) / 2**32


def lower(draw: int) -> float:
    return draw % 2**32 / 2**32


def maskable_runs(text: Text, sequence: int) -> Iterator[list[int]]:
    run: list[int] = []
    for index in range(text.offsets[sequence], text.offsets[sequence + 1]):
        if text.maskable[index]:
            run.append(index)
        elif run:
            yield run
            run = []
    if run:
        yield run


def units_of(text: Text, run: list[int], unit: Unit) -> list[list[int]]:
    units: list[list[int]] = []
    for index in run:
        if not units or unit == "tokens" or text.word_starts[index]:
            units.append([])
        units[-1].append(index)
    return units


def reference(
    text: Text, key: np.uint64, config: MaskingConfig, rate: float, slots: int | None
) -> tuple[list[int], list[int], list[int], int]:
    """`mask_tokens` with Python's integers, sets and sorting."""
    keys = [int(word) for word in text.keys(key)]
    chosen: list[tuple[int, list[int], int]] = []
    for sequence, own in enumerate(keys):
        first = int(text.offsets[sequence])
        for run in maskable_runs(text, sequence):
            for unit in units_of(text, run, config.unit):
                draw = splitmix((own + unit[0] - first) % 2**64)
                if upper(draw) < rate:
                    chosen.append((draw, unit, sequence))
    labels: dict[int, int] = {}
    shown = text.tokens.tolist()
    for draw, unit, sequence in sorted(chosen):
        if slots is not None and len(labels) + len(unit) > slots:
            break
        for index in unit:
            labels[index] = int(text.tokens[index])
            own = splitmix((keys[sequence] + index - int(text.offsets[sequence])) % 2**64)
            fate = lower(draw if config.together else own)
            if fate < config.mask_share:
                shown[index] = MASK
            elif fate < config.mask_share + config.random_share:
                shown[index] = int(ORDINARY[splitmix(own) % len(ORDINARY)])
    room = 0 if slots is None else slots - len(labels)
    positions = sorted(labels)
    found = [labels[index] for index in positions]
    dropped = sum(len(unit) for _, unit, _ in chosen) - len(labels)
    return shown, positions + [0] * room, found + [IGNORED] * room, dropped


SHARES = st.sampled_from([(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.3, 0.3)])


KINDS = st.sampled_from([("words", False), ("words", True), ("tokens", False)])
TEXTS = st.builds(
    make_text,
    st.integers(0, 2**32),
    st.lists(st.integers(2, 40), max_size=6),
    inner=st.sampled_from([0, 0.1, 0.5]),
)


@given(TEXTS, st.integers(0, 2**32), KINDS, SHARES, st.floats(0, 1), st.none() | st.integers(0, 80))
def test_the_bits_are_those_of_the_reference(text, seed, kind, shares, rate, slots):
    key = derive_key(seed)
    settings: dict[str, Any] = dict(zip(("unit", "together"), kind, strict=True))
    settings |= {"mask_share": shares[0], "random_share": shares[1]}
    shown, positions, labels, dropped = text.mask(key, rate=rate, slots=slots, **settings)
    assert (shown.dtype, positions.dtype, labels.dtype) == (np.int32, np.int64, np.int64)
    expected = reference(text, key, MaskingConfig(**settings), rate, slots)
    assert (shown.tolist(), positions.tolist(), labels.tolist(), dropped) == expected


SIZES = [(128, 0.15, 2), (1024, 0.3, 2), (4096, 0.15, 6), (4096, 0.15, 12)]


@pytest.mark.parametrize(("tokens", "rate", "word"), SIZES)
def test_almost_all_predictions_fit_the_slots(tokens, rate, word, seed):
    """Below 0.1 % are dropped. A vocabulary of bytes or characters has many tokens a word: geometric lengths,
    with this mean."""
    slots, draw = count_prediction_slots(tokens, rate, word), np.random.default_rng(seed)
    assert slots % 8 == 0
    assert tokens * rate <= slots <= tokens
    text = make_text(seed, [128] * (tokens // 128), inner=0.0)
    text.maskable[:] = True
    asked = dropped = 0
    for i in range(1000):  # one in 3,000 drops any, but then 45 of its 614; of 300, a few could be too many
        text.word_starts[:] = draw.random(tokens) < 1 / word
        _, _, labels, lost = text.mask(derive_key(seed, i), rate=rate, slots=slots)
        dropped += lost
        asked += lost + int((labels != IGNORED).sum())
    assert asked > 900 * tokens * rate
    assert dropped < 0.001 * asked


def test_the_highest_rate_is_that_of_an_end():
    assert MaskingConfig(rate=0.3, final_rate=0.1).highest_rate == 0.3
    assert MaskingConfig(rate=0.1, final_rate=0.4).highest_rate == pytest.approx(0.4)


def test_few_slots_are_for_nothing():
    assert count_prediction_slots(1000, 1.0) == 1000
    assert count_prediction_slots(1000, 0.0) == 0
    assert count_prediction_slots(65_536, 0.15) < 1.06 * 0.15 * 65_536
