"""Dynamic masking for masked language modelling: tokens (Devlin et al., 2019) or whole words (Cui et al.,
2021).

Every draw is a hash of (seed, epoch, sequence, position). So masks are new in each epoch, and they do not
depend on the row, worker or rank of a sequence. Each word is masked as a whole with probability `rate`, so
the expected fraction of masked tokens is `rate`, independent of the words' lengths and places.
"""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.draws import lower_uniform, mix_word, upper_uniform
from brimful.base.types import IGNORED
from brimful.data.config import MaskingConfig


@dataclass(frozen=True)
class MaskingVocabulary:
    """The ids of a tokenizer by which masking hides tokens.

    Attributes:
        mask: the id of [MASK].
        ordinary: int32, the ids that may replace a token: all except special and unused ones.
    """

    mask: int
    ordinary: ndarray


def count_prediction_slots(tokens: int, rate: float, tokens_per_word: float = 1.0) -> int:
    """Compute M for micro-batches of `tokens`, in steps of 8: the expected predictions and four standard
    deviations.

    Masking draws for units of several tokens: one and a half times the mean length of a word, and at least
    two tokens. With this estimate less than 0.1 % of the predictions do not fit.
    """
    expected = tokens * rate
    spread = 4 * (max(2, 1.5 * tokens_per_word) * expected * (1 - rate)) ** 0.5
    return min(tokens, -(-int(expected + spread) // 8) * 8)


@compiled
def _choose(word_starts, maskable, offsets, keys, rate, by_token, positions, word_draws):
    """Write the predictions' positions and the draws of their words; return how many there are.

    The upper half of a draw decides whether a word is masked, the lower half what is shown in its place.
    """
    n = 0
    for sequence in range(len(keys)):
        begins, hidden, draw = True, False, np.uint64(0)
        for index in range(offsets[sequence], offsets[sequence + 1]):
            if not maskable[index]:
                begins = True  # what follows a special token starts a word, whatever its bit says
                continue
            if begins or by_token or word_starts[index]:
                # A place within the sequence, so that the draw does not depend on the row.
                draw = mix_word(keys[sequence] + np.uint64(index - offsets[sequence]))
                hidden = bool(upper_uniform(draw) < rate)
            begins = False
            if hidden:
                positions[n], word_draws[n] = index, draw
                n += 1
    return n


@compiled
def _hide(
    tokens, offsets, keys, positions, word_draws, together, mask_share, random_share, mask, ordinary, labels
):
    """Write the labels of the predictions, and to `tokens` the ids that the model sees in their place."""
    sequence = 0
    for n in range(len(positions)):
        index = positions[n]
        while offsets[sequence + 1] <= index:
            sequence += 1
        labels[n] = tokens[index]
        draw = mix_word(keys[sequence] + np.uint64(index - offsets[sequence]))
        fate = lower_uniform(word_draws[n] if together else draw)
        if fate < mask_share:
            tokens[index] = mask
        elif fate < mask_share + random_share:
            tokens[index] = ordinary[np.int64(mix_word(draw) % np.uint64(len(ordinary)))]


def mask_tokens(
    tokens: ndarray,
    offsets: ndarray,
    word_starts: ndarray,
    maskable: ndarray,
    keys: ndarray,
    config: MaskingConfig,
    vocabulary: MaskingVocabulary,
    *,
    rate: float,
    slots: int | None = None,
) -> tuple[ndarray, ndarray, int]:
    """Choose the predictions of a micro-batch and hide them, in place.

    Args:
        tokens: int32 (T,), ids; what the model sees afterwards.
        offsets: int32 (n + 1,), where sequences begin, and the end of the last one.
        word_starts: bool (T,), true where a word starts; a token behind one that is not maskable starts a
            word in any case.
        maskable: bool (T,), false for special tokens and filler.
        keys: uint64 (n,), a hash of (seed, epoch, sequence) for each sequence.
        vocabulary: the ids that the model sees in place of hidden tokens.
        rate: expected fraction of tokens to predict.
        slots: M; if there are more predictions, whole words are dropped, the highest draws first.

    Returns:
        mlm_positions and mlm_labels int64 (M,), in order of position, padded with 0 and -100 if `slots` is
        given; the number of predictions that did not fit.
    """
    chosen = np.empty(len(tokens), dtype=np.int64)
    word_draws = np.empty(len(tokens), dtype=np.uint64)
    n = _choose(word_starts, maskable, offsets, keys, rate, config.unit == "tokens", chosen, word_draws)
    chosen, word_draws = chosen[:n], word_draws[:n]
    dropped = 0
    if slots is not None and n > slots:
        # The pieces of a word share one draw. So dropping the first draw that doesn't fit and all higher ones
        # never splits a word.
        fitting = word_draws < np.partition(word_draws, slots)[slots]
        dropped = n - int(fitting.sum())
        chosen, word_draws = chosen[fitting], word_draws[fitting]
    size = len(chosen) if slots is None else slots
    positions = np.zeros(size, dtype=np.int64)
    positions[: len(chosen)] = chosen
    labels = np.full(size, IGNORED, dtype=np.int64)
    shares = config.together, config.mask_share, config.random_share
    _hide(tokens, offsets, keys, chosen, word_draws, *shares, vocabulary.mask, vocabulary.ordinary, labels)
    return positions, labels, dropped
