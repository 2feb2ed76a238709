"""Stretches of documents -> pairs of segments: next sentence prediction (Devlin et al., 2019, section 3.1).

BERT's data script draws the random second segment from anywhere, so a token may appear often or never. Here
the random second segments of a block are a permutation of its second segments: each is the partner of one
first segment, from another document, and every token is in one sequence.
"""

import numpy as np

from brimful.base.compiled import compiled
from brimful.base.draws import mix_word
from brimful.base.randomness import hash_words
from brimful.data.config import PAIR_SPECIAL_TOKENS, SPECIAL_TOKENS
from brimful.data.sequences import Sequences, Stretches

NO_PAIR = -100
_TRIES = 32
"""Draws of a partner. More draws give closer lengths, and fewer segments without a partner in a block that is
almost one document."""


@compiled
def _splits(
    begin: np.ndarray, end: np.ndarray, draws: np.ndarray, bits: np.ndarray, split: np.ndarray
) -> None:
    """Cut each stretch at one of its sentence starts after the first; without another one, at its end."""
    starts = np.empty((end - begin).max(), dtype=np.int64)
    for i in range(len(begin)):
        n = 0
        for token in range(begin[i] + 1, end[i]):
            if (bits[token >> 3] >> (token & 7)) & 1:
                starts[n] = token
                n += 1
        split[i] = starts[np.int64(draws[i] % np.uint64(n))] if n else end[i]


@compiled
def _match(
    first: np.ndarray,
    second: np.ndarray,
    first_order: np.ndarray,
    second_order: np.ndarray,
    document: np.ndarray,
    room: int,
    key: np.uint64,
    partner: np.ndarray,
) -> int:
    """Write to `partner` the second segment of another document for each first segment, or -1.

    The longest first segment chooses first, among all second segments that fit `room` with it. These fit
    all later first segments too, and its own second segment is among them, so lengths never leave a segment
    without a partner. Of several draws it takes the one whose length is nearest to its own second
    segment's; otherwise the length of a pair would tell whether it is random. Returns the number n of
    second segments that are left, in `second_order[:n]`.
    """
    pool = np.empty(len(second), dtype=np.int64)
    size = reached = 0
    for i in first_order:
        while reached < len(second) and first[i] + second[second_order[reached]] <= room:
            pool[size] = second_order[reached]
            size += 1
            reached += 1
        nearest, chosen = room, np.int64(-1)
        draw = mix_word(key + np.uint64(i))
        for _ in range(_TRIES):
            place = np.int64(draw % np.uint64(size))
            distance = abs(second[pool[place]] - second[i])
            if distance < nearest and document[pool[place]] != document[i]:
                nearest, chosen = distance, place
                if nearest == 0:
                    break
            draw = mix_word(draw)
        partner[i] = -1
        if chosen >= 0:
            partner[i] = pool[chosen]
            size -= 1
            pool[chosen] = pool[size]
    while reached < len(second):
        pool[size] = second_order[reached]
        size += 1
        reached += 1
    second_order[:size] = pool[:size]
    return size


def _exchange(
    first: np.ndarray, second: np.ndarray, document: np.ndarray, room: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """For each pair, whose second segment it gets (an index, or -1); and the second segments left over."""
    partner = np.empty(len(first), dtype=np.int64)
    orders = np.argsort(-first, kind="stable"), np.argsort(second, kind="stable")
    left = _match(first, second, *orders, document, room, key, partner)
    return partner, orders[1][:left]


def _split_stretches(stretches: Stretches, sentence_bits: list[np.ndarray], key: np.uint64) -> np.ndarray:
    """Where the second segment of each stretch begins, int64 (n,): at a sentence; `end` without another."""
    split = np.empty(len(stretches.begin), dtype=np.int64)
    draws = hash_words(key, stretches.identity())
    shards, begins = np.unique(stretches.shard, return_index=True)  # which ascend
    for shard, begin, end in zip(shards, begins, [*begins[1:], len(split)], strict=True):
        here = slice(begin, end)
        _splits(stretches.begin[here], stretches.end[here], draws[here], sentence_bits[shard], split[here])
    return split


def pair_stretches(
    stretches: Stretches, sentence_bits: list[np.ndarray], room: int, key: np.uint64
) -> Sequences:
    """Pairs of segments: each stretch cut in two, half of them with the second segment of another document.

    Args:
        sentence_bits: of each shard.
        room: the most tokens of a pair, special tokens not counted.
        key: decides which half, where stretches are cut, and the partners.

    Returns:
        the pairs, in the order of their first segments; then the sequences without a pair: stretches
        of a single sentence, and segments for which no other document is left.
    """
    split = _split_stretches(stretches, sentence_bits, key)
    first, second = split - stretches.begin, stretches.end - split
    paired = second > 0
    other = paired & (hash_words(key, ~stretches.identity()) >> np.uint64(63)).astype(bool)
    partner = np.where(paired, np.arange(len(split)), -1)
    chosen = np.flatnonzero(other)
    matched, unmatched = _exchange(first[chosen], second[chosen], stretches.document[chosen], room, key)
    partner[chosen] = np.where(matched < 0, -1, chosen[matched])
    left = chosen[unmatched]

    pairs = np.flatnonzero(partner >= 0)
    seconds = partner[pairs]
    alone = np.flatnonzero(partner < 0)
    # A single segment is a whole stretch of one sentence, or a first segment for which no partner was left.
    singles = len(alone) + len(left)
    return Sequences(
        shard=np.concatenate([stretches.shard[pairs], stretches.shard[alone], stretches.shard[left]]),
        begin=np.concatenate([stretches.begin[pairs], stretches.begin[alone], split[left]]),
        length=np.concatenate(
            [
                first[pairs] + second[seconds] + PAIR_SPECIAL_TOKENS,
                first[alone] + SPECIAL_TOKENS,
                second[left] + SPECIAL_TOKENS,
            ]
        ).astype(np.int32),
        second_shard=np.concatenate([stretches.shard[seconds], np.zeros(singles, np.uint32)]),
        second_begin=np.concatenate([split[seconds], np.zeros(singles, np.int64)]),
        second_length=np.concatenate([second[seconds], np.zeros(singles, np.int64)]).astype(np.int32),
        pair=np.concatenate([other[pairs], np.full(singles, NO_PAIR)]).astype(np.int8),
    )
