"""Stretches of documents -> pairs of segments: next sentence prediction (Devlin et al., 2019, section 3.1).

BERT's data script draws the random second segment from anywhere, so a token may appear often or never. Here
the random second segments of a block are a permutation of its second segments: each is the partner of one
first segment, from another document, and every token is in one sequence.
"""

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.draws import mix_word
from brimful.base.randomness import hash_words
from brimful.data.config import PAIR_SPECIAL_TOKENS, SPECIAL_TOKENS
from brimful.data.sequences import Sequences, Stretches, make_sequences

NO_PAIR = -100
MAX_DRAWS = 32
"""The most draws of a partner. More give closer lengths, and leave fewer segments without a partner if nearly
the whole block is one document."""


@compiled
def _split(begin, end, draws, bits, split):
    """Cut each stretch at a random sentence start after its first token, or at its end if there is none."""
    starts = np.empty((end - begin).max(), dtype=np.int64)
    for i in range(len(begin)):
        n = 0
        for token in range(begin[i] + 1, end[i]):
            if (bits[token >> 3] >> (token & 7)) & 1:
                starts[n] = token
                n += 1
        split[i] = starts[np.int64(draws[i] % np.uint64(n))] if n else end[i]


@compiled
def _match(first, second, first_order, second_order, document, room, key, partner):
    """Write to `partner` the second segment of another document for each first segment, or -1.

    The longest first segment chooses first, among all second segments that fit `room` with it. These fit
    all later first segments too, and its own second segment is among them, so lengths never leave a segment
    without a partner. Each first segment draws several times, and takes the draw whose length is nearest to
    the length of its own second segment: otherwise the length of a pair would tell whether it is random.
    Returns the number n of second segments without a first one, which are then `second_order[:n]`.
    """
    pool = np.empty(len(second), dtype=np.int64)
    size = reached = 0
    for i in first_order:
        # The pool grows as first segments get shorter: it always holds the segments that fit and are free.
        while reached < len(second) and first[i] + second[second_order[reached]] <= room:
            pool[size] = second_order[reached]
            size += 1
            reached += 1
        nearest, chosen = room, np.int64(-1)
        draw = mix_word(key + np.uint64(i))
        for _ in range(MAX_DRAWS):
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
            pool[chosen] = pool[size]  # the last one fills the gap
    for i in second_order[reached:]:
        pool[size] = i
        size += 1
    second_order[:size] = pool[:size]
    return size


def _split_stretches(stretches: Stretches, sentence_bits: list[ndarray], key: np.uint64) -> ndarray:
    """Draw where the second segment of each stretch begins, int64 (n,): at a sentence, or else `end`."""
    split = np.empty(len(stretches.begin), dtype=np.int64)
    draws = hash_words(key, stretches.identity())
    shards, begins = np.unique(stretches.shard, return_index=True)  # stretches ascend by shard
    for shard, begin, end in zip(shards, begins, [*begins[1:], len(split)], strict=True):
        own = slice(begin, end)
        _split(stretches.begin[own], stretches.end[own], draws[own], sentence_bits[shard], split[own])
    return split


def pair_stretches(
    stretches: Stretches, sentence_bits: list[ndarray], room: int, key: np.uint64
) -> Sequences:
    """Make pairs of segments: each stretch cut in two, half of them with the second segment of another
    document.

    Args:
        sentence_bits: the sentence starts of each shard, as bits.
        room: the most tokens of a pair, special tokens not counted.
        key: decides which half, where stretches are cut, and the partners.

    Returns:
        the pairs, in the order of their first segments; then the sequences without a pair: stretches
        of a single sentence, and segments for which no other document has a partner.
    """
    split = _split_stretches(stretches, sentence_bits, key)
    first, second = split - stretches.begin, stretches.end - split  # tokens of both segments, (n,)
    paired = second > 0
    # The top bit of a hash is a fair coin. The complement is hashed, since `split` used the identity.
    is_random = paired & (hash_words(key, ~stretches.identity()) >> np.uint64(63)).astype(bool)
    exchanged = np.flatnonzero(is_random)
    matched = np.empty(len(exchanged), dtype=np.int64)
    firsts, seconds = first[exchanged], second[exchanged]
    longest_first, shortest_first = np.argsort(-firsts, kind="stable"), np.argsort(seconds, kind="stable")
    documents = stretches.document[exchanged]
    n = _match(firsts, seconds, longest_first, shortest_first, documents, room, key, matched)
    # partner[i]: the stretch whose second segment follows the first segment of stretch i, or -1
    partner = np.where(paired, np.arange(len(split)), -1)
    partner[exchanged] = np.where(matched < 0, -1, exchanged[matched])

    pairs, singles = np.flatnonzero(partner >= 0), np.flatnonzero(partner < 0)
    partners = partner[pairs]
    freed = exchanged[shortest_first[:n]]  # the stretches whose second segment is a sequence by itself
    order = np.concatenate([pairs, singles, freed])
    separators = PAIR_SPECIAL_TOKENS - SPECIAL_TOKENS  # between the segments of a pair
    length = np.concatenate([first[pairs] + second[partners] + separators, first[singles], second[freed]])
    zeros = np.zeros(len(order) - len(pairs), dtype=np.int64)
    return make_sequences(
        shard=stretches.shard[order],
        begin=np.append(stretches.begin[order[: len(split)]], split[freed]),
        length=length + SPECIAL_TOKENS,
        second_shard=np.append(stretches.shard[partners], zeros),
        second_begin=np.append(split[partners], zeros),
        second_length=np.append(second[partners], zeros),
        pair=np.append(is_random[pairs], zeros + NO_PAIR),
    )
