"""Dynamic masking for masked language modelling (Devlin et al., 2019; whole words: Cui et al., 2021).

Every draw is a hash of (seed, epoch, sequence, position), so masks are new each epoch, and the same whatever
row, worker or rank a sequence comes to. A word is masked all or nothing, with
probability `rate`, so the expected share of masked tokens is `rate` whatever the words' lengths. Each piece
of a masked word draws its own replacement.
"""

from dataclasses import dataclass

import numpy as np

from brimful.data.batch import IGNORED
from brimful.errors import BrimfulError
from brimful.randomness import mix

_SCALE = 1.0 / (1 << 32)
_LOW = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Which tokens a model must predict, and what it sees in their place."""

    rate: float = 0.3
    """Expected share of tokens to predict."""
    whole_words: bool = True
    """Mask all pieces of a word or none; false draws every token by itself."""
    mask_share: float = 0.8
    """Share of predicted tokens shown as [MASK]."""
    random_share: float = 0.1
    """Share shown as a random token; the rest is shown as it is."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise BrimfulError(f"masking.rate is {self.rate}: it is a share, from 0 to 1")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise BrimfulError("masking.mask_share and masking.random_share must add up to at most 1")


@dataclass(frozen=True)
class Vocabulary:
    """What masking must know of a tokenizer.

    Attributes:
        mask: id of [MASK].
        ordinary: int32, ids that may replace a token (no special tokens).
    """

    mask: int
    ordinary: np.ndarray


def prediction_slots(tokens: int, rate: float) -> int:
    """M for micro-batches of `tokens`: the expected predictions and five standard deviations of whole-word
    draws (words of two tokens on average), in steps of 8."""
    expected = tokens * rate
    spread = 5 * (2 * expected * (1 - rate)) ** 0.5
    return min(tokens, -(-int(expected + spread) // 8) * 8)


def mask_tokens(
    tokens: np.ndarray,
    positions: np.ndarray,
    word_starts: np.ndarray,
    maskable: np.ndarray,
    sequence_keys: np.ndarray,
    config: MaskingConfig,
    vocabulary: Vocabulary,
    slots: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Choose the predictions of a micro-batch and hide them.

    Args:
        tokens: int32 (T,), ids.
        positions: int32 (T,), place within the sequence.
        word_starts: bool (T,), true where a word starts; a sequence starts one.
        maskable: bool (T,), false for special tokens and filler.
        sequence_keys: uint64 (T,), a hash of (seed, epoch, sequence) for each token's sequence.
        vocabulary: the ids to hide tokens behind.
        slots: M; predictions beyond it are dropped by whole words, those that drew highest first.

    Returns:
        tokens int32 (T,) as the model sees them; mlm_positions and mlm_labels int64 (M,), in order of
        position, padded with 0 and -100 if `slots` is given; the number of predictions that didn't fit.
    """
    draws = mix(sequence_keys + positions.astype(np.uint64))
    chance = (draws >> _S32) * _SCALE
    if config.whole_words:
        starts = word_starts | ~maskable
        starts[0] = True
        word = np.cumsum(starts) - 1
        chance = chance[np.flatnonzero(starts)][word]
    chosen = np.flatnonzero((chance < config.rate) & maskable)
    dropped = 0
    if slots is not None and len(chosen) > slots:
        # Words are atomic and share one chance, so dropping every chance from the first that doesn't fit on
        # never splits one.
        ranked = np.sort(chance[chosen])
        keep = chance[chosen] < ranked[slots]
        dropped = int(len(chosen) - keep.sum())
        chosen = chosen[keep]

    labels = tokens[chosen].astype(np.int64)
    fate = (draws[chosen] & _LOW) * _SCALE
    shown = tokens.copy()
    hidden = fate < config.mask_share
    shown[chosen[hidden]] = vocabulary.mask
    swapped = ~hidden & (fate < config.mask_share + config.random_share)
    which = mix(draws[chosen[swapped]]) % np.uint64(len(vocabulary.ordinary))
    shown[chosen[swapped]] = vocabulary.ordinary[which.astype(np.int64)]

    size = len(chosen) if slots is None else slots
    mlm_positions = np.zeros(size, dtype=np.int64)
    mlm_labels = np.full(size, IGNORED, dtype=np.int64)
    mlm_positions[: len(chosen)] = chosen
    mlm_labels[: len(chosen)] = labels
    return shown, mlm_positions, mlm_labels, dropped
