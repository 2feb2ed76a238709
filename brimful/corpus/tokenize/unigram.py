"""Unigram vocabularies (Kudo, 2018, "Subword Regularization", section 3.2), the same one from every training.

The trainer of `tokenizers` visits words in the order of a hash map, so float sums and the scores of rare
characters differ from run to run; it also takes minutes for 5 MB. Here the words are sorted arrays, and every
substring that may become a piece is found once, by n-gram counting: the lattice of all words is one CSR
matrix of edges, from which dropped pieces are struck.

1. Seeds: every character, and the substrings with the highest count x length. A substring that always
   continues in the same way is left out, since the longer one says the same.
2. EM: expected counts by forward-backward; scores by digamma, a sparse prior, as SentencePiece has it.
3. Pruning: the quarter of the pieces goes whose loss lowers the likelihood least. Then 2 again.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from brimful.text.code_points import HAN, character_classes, code_points

LONGEST_LATIN = 16
SEEDS_PER_ENTRY = 20
LEAST_SEEDS = 100_000
KEPT = 0.75
LEAST_EXPECTED = 0.5
DECIMALS = 6


class Lattice(NamedTuple):
    """Which pieces stand where in the distinct words, laid end to end.

    `edges` int64 (characters + 1,) says where the pieces that begin at a character begin in `pieces` int32
    (occurrences,). `lengths` and `first`, int64 (pieces,): a piece's characters, and one place it stands at.
    """

    edges: np.ndarray
    pieces: np.ndarray
    lengths: np.ndarray
    first: np.ndarray


def train_unigram(
    counts: Mapping[str, int], alphabet: list[str], size: int, *, longest_han: int
) -> list[tuple[str, float]]:
    """The best `size` pieces for the words, or as many as there are, with log probabilities.

    Args:
        counts: how often each word occurs.
        alphabet: characters that are pieces in any case, at most `size`. Others cut words in two.
        longest_han: the most characters of a piece that begins with a Chinese one.

    Returns:
        Pieces by falling score, equal ones by code point.
    """
    codes, words, weights = _segments(counts, alphabet)
    longest = np.where(character_classes()[codes] == HAN, longest_han, LONGEST_LATIN)
    grams = list(_grams(codes, words, weights, longest))
    lattice, scores = _seeds(grams, max(LEAST_SEEDS, SEEDS_PER_ENTRY * size))
    del grams
    while True:
        for _ in range(2):
            scores, expected = _em_step(lattice, scores, words, weights)
        if len(scores) <= size:
            break
        losses = np.zeros(len(scores))
        _compiled()[1](*lattice, scores, expected, losses)
        losses[expected < LEAST_EXPECTED] = -np.inf
        losses[lattice.lengths == 1] = np.inf
        order = np.lexsort((np.arange(len(losses)), -np.round(losses, DECIMALS)))
        kept = np.sort(order[: max(size, int(KEPT * len(scores)))])
        lattice, scores = _strike(lattice, kept), scores[kept]
    places = zip(lattice.first.tolist(), lattice.lengths.tolist(), strict=True)
    texts = ["".join(map(chr, codes[first : first + length])) for first, length in places]
    rounded = np.round(scores, DECIMALS).tolist()
    return sorted(zip(texts, rounded, strict=True), key=lambda piece: (-piece[1], piece[0]))


def _segments(counts: Mapping[str, int], alphabet: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The words in code point order without unknown characters: codes, where words begin, word counts."""
    known = np.zeros(0x110000, bool)
    known[[ord(character) for character in alphabet]] = True
    ordered = sorted(counts)
    codes = code_points("".join(ordered))
    lengths = np.fromiter(map(len, ordered), np.int64, len(ordered))
    weights = np.repeat(np.fromiter((counts[word] for word in ordered), np.float64, len(ordered)), lengths)
    begins = np.zeros(len(codes), bool)
    begins[np.cumsum(lengths) - lengths] = True
    begins[1:] |= ~known[codes[:-1]]
    inside = known[codes]
    words = np.flatnonzero(begins[inside])
    return codes[inside], np.append(words, np.count_nonzero(inside)), weights[inside][words]


class _Grams(NamedTuple):
    """The frequent substrings of one length: where they begin, which one is there; their counts."""

    begins: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray
    closed: np.ndarray
    """Whether each is more frequent than every longer one that holds it."""


def _grams(
    codes: np.ndarray, words: np.ndarray, weights: np.ndarray, longest: np.ndarray
) -> Iterator[_Grams]:
    """Substrings of 1, 2, 3 ... characters; those of one occur once at least, all others twice.

    A frequent substring is made of two frequent ones, one character apart. `closed` is final once the next
    length is there.
    """
    lengths = np.diff(words)
    weight = np.repeat(weights, lengths)
    places = np.arange(len(codes), dtype=np.int32)
    room = np.minimum(np.repeat(words[1:], lengths) - places, longest).astype(np.int8)
    characters = np.unique(codes, return_inverse=True)[1].astype(np.int32)
    counts = np.bincount(characters, weight)
    shorter = _Grams(places, characters, counts, np.ones(len(counts), bool))
    present = characters.copy()
    for length in range(2, LONGEST_LATIN + 1):
        yield shorter
        begins = shorter.begins[room[shorter.begins] >= length]
        begins = begins[present[begins + 1] >= 0]
        keys = present[begins].astype(np.int64) * len(counts) + characters[begins + length - 1]
        _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
        found = np.bincount(numbers, weight[begins], minlength=len(first))
        for part in (present[begins[first]], present[begins[first] + 1]):
            shorter.closed[part[shorter.counts[part] == found]] = False
        frequent = found > 1
        numbers = np.where(frequent, np.cumsum(frequent) - 1, -1)[numbers]
        begins, numbers = begins[numbers >= 0], numbers[numbers >= 0]
        if not len(begins):
            return
        present.fill(-1)
        present[begins] = numbers
        counted = found[frequent]
        shorter = _Grams(begins, numbers.astype(np.int32), counted, np.ones(len(counted), bool))
    yield shorter


def _seeds(grams: list[_Grams], most: int) -> tuple[Lattice, np.ndarray]:
    """The lattice of all characters and of the substrings with the highest count x length; first scores."""
    lengths = np.repeat(np.arange(1, len(grams) + 1), [len(level.counts) for level in grams])
    scores = lengths * np.concatenate([level.counts for level in grams])
    characters = len(grams[0].counts)
    worth = np.where(np.concatenate([level.closed for level in grams]), scores, 0.0)
    worth[:characters] = np.inf
    order = np.lexsort((np.arange(len(worth)), -worth))[: min(characters + most, np.count_nonzero(worth))]
    chosen = np.sort(order)
    piece = np.full(len(worth), -1, np.int32)
    piece[chosen] = np.arange(len(chosen))
    places, pieces, base = [], [], 0
    for level in grams:
        there = piece[base + level.numbers]
        places.append(level.begins[there >= 0])
        pieces.append(there[there >= 0])
        base += len(level.counts)
    place, edge = np.concatenate(places), np.concatenate(pieces)
    by_place = np.argsort(place, kind="stable")
    place, edge = place[by_place], edge[by_place]
    edges = np.searchsorted(place, np.arange(len(grams[0].begins) + 1))
    _, first = np.unique(edge, return_index=True)
    return Lattice(edges, edge, lengths[chosen], place[first]), np.log(scores[chosen] / scores[chosen].sum())


def _strike(lattice: Lattice, kept: np.ndarray) -> Lattice:
    """The lattice of the kept pieces alone, renumbered."""
    renumbered = np.full(len(lattice.lengths), -1, np.int32)
    renumbered[kept] = np.arange(len(kept))
    pieces = renumbered[lattice.pieces]
    edges = np.append(0, np.cumsum(pieces >= 0))[lattice.edges]
    return Lattice(edges, pieces[pieces >= 0], lattice.lengths[kept], lattice.first[kept])


def _em_step(
    lattice: Lattice, scores: np.ndarray, words: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """New scores, and the expected counts under the old ones."""
    from scipy.special import digamma

    expected = np.zeros(len(scores))
    _compiled()[0](words, weights, *lattice, scores, expected)
    counts = np.maximum(expected, LEAST_EXPECTED)
    return digamma(counts) - digamma(counts.sum()), expected


def _expect(
    words: np.ndarray,
    weights: np.ndarray,
    edges: np.ndarray,
    pieces: np.ndarray,
    lengths: np.ndarray,
    first: np.ndarray,
    scores: np.ndarray,
    expected: np.ndarray,
) -> None:
    """Add each piece's expected count, by forward-backward in log space over every word."""
    longest = 0
    for word in range(len(weights)):
        longest = max(longest, words[word + 1] - words[word])
    forward = np.empty(longest + 1)
    backward = np.empty(longest + 1)
    for word in range(len(weights)):
        begin, size = words[word], words[word + 1] - words[word]
        forward[: size + 1] = -np.inf
        forward[0] = 0.0
        for place in range(size):
            for edge in range(edges[begin + place], edges[begin + place + 1]):
                end = place + lengths[pieces[edge]]
                forward[end] = np.logaddexp(forward[end], forward[place] + scores[pieces[edge]])
        backward[size] = 0.0
        for place in range(size - 1, -1, -1):
            total = -np.inf
            for edge in range(edges[begin + place], edges[begin + place + 1]):
                piece = pieces[edge]
                after = scores[piece] + backward[place + lengths[piece]]
                total = np.logaddexp(total, after)
                expected[piece] += weights[word] * np.exp(forward[place] + after - forward[size])
            backward[place] = total


def _losses(
    edges: np.ndarray,
    pieces: np.ndarray,
    lengths: np.ndarray,
    first: np.ndarray,
    scores: np.ndarray,
    expected: np.ndarray,
    losses: np.ndarray,
) -> None:
    """How much log likelihood goes with each piece, if the best other spelling takes its place."""
    total = expected.sum()
    best = np.empty(lengths.max() + 1)
    last = np.empty(lengths.max() + 1, np.int64)
    for piece in range(len(lengths)):
        begin, size, count = first[piece], lengths[piece], expected[piece]
        if size == 1 or count == 0:
            continue
        best[: size + 1] = -np.inf
        best[0] = 0.0
        for place in range(size):
            for edge in range(edges[begin + place], edges[begin + place + 1]):
                other = pieces[edge]
                end = place + lengths[other]
                if end <= size and other != piece and best[place] + scores[other] > best[end]:
                    best[end] = best[place] + scores[other]
                    last[end] = other
        others, place, replaced = 0, size, 0.0
        while place > 0:
            replaced += np.log(expected[last[place]] + count)
            place -= lengths[last[place]]
            others += 1
        replaced -= others * np.log(total + count * (others - 1))
        losses[piece] = count * (np.log(count / total) - replaced)


@functools.cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    from brimful.compiled import compiled

    return compiled(_expect), compiled(_losses)
