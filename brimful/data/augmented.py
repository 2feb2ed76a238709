"""Augmented examples, drawn anew in each epoch: copies of texts in which some words are others.

A table says which words of an example may be replaced, and by what. Which of them are is a hash of (seed,
epoch, text, copy, word), so an epoch is the same on any number of ranks and workers, and after a resume.
The distribution is that of TinyBERT (Jiao et al. 2020, algorithm 1): each word is replaced with probability
`rate`, by one of its candidates, each of which is as likely as the others.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from brimful.compiled import compiled
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.draws import mix_word
from brimful.errors import BrimfulError
from brimful.randomness import derive_key, hash_words, uniform

START, GLUED, SPACED = range(3)
"""Where a word stands, which may decide its tokens: at the start of a text, behind another character, behind
a space."""
PLACES = 3
NO_FIELD = 2
"""The field of an example that is shown as it is."""
_AT_ONCE = 1 << 18
_UNIT = 1.0 / (1 << 53)
_S11 = np.uint64(11)


def copy_keys(
    seed: int, epochs: np.ndarray | int, texts: np.ndarray | int, fields: np.ndarray | int, copies: np.ndarray
) -> np.ndarray:
    """The keys of copies, uint64, in the shape of the arguments together.

    Args:
        fields: 0 or 1, the text of the pair that is augmented.
        copies: from 0.
    """
    key = hash_words(derive_key(seed, "augment"), np.asarray(epochs))
    for counters in (texts, fields, copies):
        key = hash_words(key, np.asarray(counters))
    return key


def picked(key: np.uint64, numbers: np.ndarray, counts: np.ndarray, rate: float) -> np.ndarray:
    """The candidate that each word becomes in a copy, int64 (words,); -1: it stays.

    Args:
        key: of the copy.
        numbers: the words' numbers in their text.
        counts: how many candidates each has.
    """
    draws = uniform(key, numbers)
    chosen = np.minimum((draws / max(rate, _UNIT) * counts).astype(np.int64), counts - 1)
    return np.where(draws < rate, chosen, -1)


@dataclass(frozen=True)
class Replacements:
    """Which words of examples may be replaced, and by which tokens.

    Attributes:
        offsets: int64 (n + 1,), the words of each example, in the order of its tokens.
        begins, lengths: int32 (words,), the tokens of each word in its example.
        fields: uint8 (words,), the text of the pair that it stands in.
        numbers: int32 (words,), its number in that text.
        rows: int64 (words,), its candidates: a row of `choices`.
        places: uint8 (words,): START, GLUED or SPACED.
        choices: int32 (rows, K), numbers of candidates; -1 where there are fewer.
        counts: int32 (rows,), how many there are: at least one.
        tokens: int32 ragged, the tokens of candidate c at place p are `tokens[PLACES * c + p]`.
        ranges: int32 (n, 2, 2), where the tokens of both texts begin and end in each example.
        texts: int64 (n,), the text of each example.
    """

    offsets: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    fields: np.ndarray
    numbers: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    choices: np.ndarray
    counts: np.ndarray
    tokens: Ragged
    ranges: np.ndarray
    texts: np.ndarray


def require_augmentable(examples: Examples) -> None:
    """
    Raises:
        BrimfulError: the examples have targets of tokens, or belong together.
    """
    if examples.together:
        raise BrimfulError("texts whose examples belong together have no augmented copies")
    if any(isinstance(values, Ragged) for values in examples.targets.values()):
        raise BrimfulError("labels of tokens do not fit augmented texts: leave out either")


class AugmentedExamples:
    """Examples and, in each epoch, new copies of them.

    An epoch has the n examples as they are, and then `copies` copies of each text in which a word can be
    replaced. Of a pair, a copy augments one text and leaves the other as it is, so a pair has twice as many.

    Attributes:
        examples: as they are. Copies have their targets.
        copies: of each text.
    """

    def __init__(self, examples: Examples, replacements: Replacements, *, copies: int, rate: float) -> None:
        """
        Args:
            rate: the probability that a word is replaced.

        Raises:
            BrimfulError: the examples have targets of tokens, or belong together.
        """
        require_augmentable(examples)
        self.examples = examples
        self.copies = copies
        self.rate = rate
        self._of = replacements
        owners = np.repeat(np.arange(len(examples)), np.diff(replacements.offsets))
        self._variants = np.unique(owners * 2 + replacements.fields) if copies else np.zeros(0, np.int64)

    def __len__(self) -> int:
        """Examples of an epoch."""
        return len(self.examples) + self.copies * len(self._variants)

    @property
    def units(self) -> int:
        """Examples of an epoch, which updates count."""
        return len(self)

    @property
    def max_length(self) -> int:
        """The longest that an example may be."""
        return self.examples.max_length

    longest_unit = max_length

    def drawn(self, seed: int, epochs: np.ndarray, index: np.ndarray) -> tuple[Examples, np.ndarray]:
        """What the examples `index` of their epochs are, int64 (m,): m examples, and their numbers in it."""
        origins, fields, keys = self._drawn(seed, epochs, index)
        lengths = self._lengths(origins, fields, keys)
        longest = self.examples.max_length
        kept = np.minimum(lengths, longest)
        starts = np.cumsum(kept) - kept
        tokens = np.empty(int(kept.sum()), dtype=np.int32)
        segments = np.empty(len(tokens), dtype=np.uint8)
        whole, types, of = self._tokens, self._segments, self._of
        _splice(
            origins, fields, keys, self.rate, of.offsets, of.begins, of.lengths, of.fields, of.numbers,
            of.rows, of.places, of.choices, of.counts, of.tokens.values, of.tokens.starts, of.tokens.lengths,
            of.ranges, whole.values, whole.starts, whole.lengths, types.values, types.starts, lengths,
            starts, longest, tokens, segments,
        )  # fmt: skip
        shown = replace(
            self.examples,
            tokens=Ragged(tokens, starts, kept),
            segments=Ragged(segments, starts, kept),
            targets={name: np.asarray(values)[origins] for name, values in self.examples.targets.items()},
            texts=None,
            characters=None,
            cut=0,
        )
        return shown, np.arange(len(index))

    def origins(self, index: np.ndarray) -> np.ndarray:
        """int64 (m,): the examples, of those that are as they are, that the examples `index` come from."""
        index = np.asarray(index)
        if not len(self._variants):
            return index
        copied = self._variants[(index - len(self.examples)) % len(self._variants)] // 2
        return np.where(index < len(self.examples), index, copied)

    def cut(self, seed: int = 0, epoch: int = 0) -> int:
        """How many copies of an epoch lose their ends, since their words become longer than there is room."""
        count = 0
        for start in range(len(self.examples), len(self), _AT_ONCE):
            index = np.arange(start, min(start + _AT_ONCE, len(self)))
            lengths = self._lengths(*self._drawn(seed, np.full(len(index), epoch), index))
            count += int((lengths > self.examples.max_length).sum())
        return count

    def _drawn(
        self, seed: int, epochs: np.ndarray, index: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of examples of epochs: the origin, which text of it changes, and the key of the copy."""
        index = np.asarray(index)
        origins = self.origins(index)
        fields = np.full(len(index), NO_FIELD, dtype=np.uint8)
        copies = np.zeros(len(index), dtype=np.int64)
        copied = index >= len(self.examples)
        if copied.any():
            numbers = index[copied] - len(self.examples)
            fields[copied] = self._variants[numbers % len(self._variants)] % 2
            copies[copied] = numbers // len(self._variants)
        keys = copy_keys(seed, np.asarray(epochs), self._of.texts[origins], fields, copies)
        return origins.astype(np.int64), fields, keys

    def _lengths(self, origins: np.ndarray, fields: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Tokens of each before it is cut, int64."""
        of = self._of
        return _new_lengths(
            origins, fields, keys, self.rate, of.offsets, of.lengths, of.fields, of.numbers, of.rows,
            of.places, of.choices, of.counts, of.tokens.lengths, self._tokens.lengths,
        )  # fmt: skip

    @cached_property
    def _tokens(self) -> Ragged:
        return _ragged(self.examples.tokens, np.int32)

    @cached_property
    def _segments(self) -> Ragged:
        return _ragged(self.examples.segments, np.uint8)


def _ragged(arrays: object, dtype: type) -> Ragged:
    return arrays if isinstance(arrays, Ragged) else Ragged.of(arrays, dtype)  # type: ignore[arg-type]


@compiled
def _pick(key: np.uint64, number: int, count: int, rate: float) -> int:
    """`picked` of one word."""
    draw = (mix_word(mix_word(np.uint64(number)) ^ key) >> _S11) * _UNIT
    if draw >= rate:
        return -1
    return min(int(draw / max(rate, _UNIT) * count), count - 1)


@compiled
def _new_lengths(
    origins: np.ndarray,
    shown: np.ndarray,
    keys: np.ndarray,
    rate: float,
    offsets: np.ndarray,
    lengths: np.ndarray,
    fields: np.ndarray,
    numbers: np.ndarray,
    rows: np.ndarray,
    places: np.ndarray,
    choices: np.ndarray,
    counts: np.ndarray,
    token_lengths: np.ndarray,
    old_lengths: np.ndarray,
) -> np.ndarray:
    """Tokens of each example with its words replaced, int64. See `Replacements`; `shown`: the field that
    changes."""
    result = np.empty(len(origins), np.int64)
    for n in range(len(origins)):
        example = origins[n]
        total = old_lengths[example]
        if shown[n] != NO_FIELD:
            for word in range(offsets[example], offsets[example + 1]):
                if fields[word] == shown[n]:
                    row = rows[word]
                    choice = _pick(keys[n], numbers[word], counts[row], rate)
                    if choice >= 0:
                        total += token_lengths[PLACES * choices[row, choice] + places[word]] - lengths[word]
        result[n] = total
    return result


@compiled
def _splice(
    origins: np.ndarray,
    shown: np.ndarray,
    keys: np.ndarray,
    rate: float,
    offsets: np.ndarray,
    begins: np.ndarray,
    lengths: np.ndarray,
    fields: np.ndarray,
    numbers: np.ndarray,
    rows: np.ndarray,
    places: np.ndarray,
    choices: np.ndarray,
    counts: np.ndarray,
    new_tokens: np.ndarray,
    new_starts: np.ndarray,
    new_lengths: np.ndarray,
    ranges: np.ndarray,
    old_tokens: np.ndarray,
    old_starts: np.ndarray,
    old_lengths: np.ndarray,
    old_types: np.ndarray,
    type_starts: np.ndarray,
    spliced_lengths: np.ndarray,
    starts: np.ndarray,
    longest: int,
    tokens: np.ndarray,
    types: np.ndarray,
) -> None:
    """Write the examples with their words replaced, each at its start, and at most `longest` tokens of it:
    the longer text of a pair loses its end first, as where `tokenizers` cuts pairs."""
    for n in range(len(origins)):
        example, at = origins[n], starts[n]
        source, source_types = old_starts[example], type_starts[example]
        room0 = ranges[example, 0, 1] - ranges[example, 0, 0]
        room1 = ranges[example, 1, 1] - ranges[example, 1, 0]
        grown = spliced_lengths[n] - old_lengths[example]
        if shown[n] == 0:
            room0 += grown
        else:
            room1 += grown
        for _ in range(spliced_lengths[n] - longest):
            if room0 > room1:
                room0 -= 1
            else:
                room1 -= 1
        word, end = offsets[example], offsets[example + 1]
        place = 0
        while place < old_lengths[example]:
            in0 = ranges[example, 0, 0] <= place < ranges[example, 0, 1]
            in1 = ranges[example, 1, 0] <= place < ranges[example, 1, 1]
            while word < end and begins[word] < place:
                word += 1
            first, count, step = source + place, 1, 1
            replaced = False
            if word < end and begins[word] == place and fields[word] == shown[n]:
                row = rows[word]
                choice = _pick(keys[n], numbers[word], counts[row], rate)
                if choice >= 0:
                    candidate = PLACES * choices[row, choice] + places[word]
                    first, count, step = new_starts[candidate], new_lengths[candidate], lengths[word]
                    replaced = True
            for k in range(count):
                if in0:
                    room0 -= 1
                    if room0 < 0:
                        continue
                if in1:
                    room1 -= 1
                    if room1 < 0:
                        continue
                tokens[at] = new_tokens[first + k] if replaced else old_tokens[first + k]
                types[at] = old_types[source_types + place]
                at += 1
            place += step
