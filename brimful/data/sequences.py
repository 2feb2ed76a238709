"""Documents -> sequences: whole sentences of one document up to a limit (RoBERTa's DOC-SENTENCES; Liu et al.
2019, section 4.2), plain chunks, or pairs of segments (`pairs`).

A sequence is one or two ranges of the shards' tokens, so nothing is copied and lengths are known without
reading a token. Every token of every document is in exactly one sequence of an epoch; no tail is dropped.
The first cut of a document is drawn anew each epoch, so that borders move.
"""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.draws import lower_uniform, mix_word, upper_uniform
from brimful.base.randomness import hash_words
from brimful.corpus.shards import Corpus
from brimful.data.config import SequencesConfig


def _keys(shard: ndarray, begin: ndarray) -> ndarray:
    """uint64: keys of ranges of tokens for draws; they do not depend on order or packing."""
    return (shard.astype(np.uint64) << np.uint64(48)) | begin.astype(np.uint64)


@dataclass(frozen=True)
class Sequences:
    """Ranges of tokens. Without a second segment, `second_length` is 0 and `pair` -100.

    Attributes:
        shard: uint32 (n,), index into the corpus's shards.
        begin: int64 (n,), first token within the shard.
        length: int32 (n,), tokens, special tokens and the second segment included.
        second_shard, second_begin: where the second segment is, uint32 and int64 (n,); (0,) without pairs.
        second_length: int32 (n,) or (0,), its tokens without special tokens.
        pair: int8 (n,) or (0,): 0 = the second segment follows the first, 1 = it does not, -100 = no pair.
    """

    shard: ndarray
    begin: ndarray
    length: ndarray
    second_shard: ndarray
    second_begin: ndarray
    second_length: ndarray
    pair: ndarray

    def __len__(self) -> int:
        return len(self.begin)

    def identity(self, index: ndarray) -> ndarray:
        """uint64: keys of these sequences, for draws."""
        return _keys(self.shard[index], self.begin[index])


SEQUENCE_ARRAYS: dict[str, type[np.generic]] = {
    "shard": np.uint32,
    "begin": np.int64,
    "length": np.int32,
    "second_shard": np.uint32,
    "second_begin": np.int64,
    "second_length": np.int32,
    "pair": np.int8,
}
"""The attributes of `Sequences`."""


def make_sequences(**arrays: ndarray) -> Sequences:
    """Make sequences from their attributes, cast to their dtypes. Without pairs, three arrays are enough."""
    return Sequences(
        **{name: arrays.get(name, np.empty(0)).astype(dtype) for name, dtype in SEQUENCE_ARRAYS.items()}
    )


@dataclass(frozen=True)
class Stretches:
    """Ranges of tokens that documents are cut into, in the order of the documents.

    Attributes:
        document: int64 (n,), index over the whole corpus.
        shard: int64 (n,), index into the corpus's shards.
        begin, end: int64 (n,), within the shard.
    """

    document: ndarray
    shard: ndarray
    begin: ndarray
    end: ndarray

    def identity(self) -> ndarray:
        """uint64 (n,): keys of the stretches, for draws."""
        return _keys(self.shard, self.begin)


@compiled
def _last_bit(bits, low, high):
    """The last index in low + 1 ... high whose bit is set, else `low`."""
    index = high
    while index > low and not (bits[index >> 3] >> (index & 7)) & 1:
        index -= 1
    return index


@compiled
def _cut(starts, ends, keys, sentence_bits, word_bits, room, sentences, short_share, stretches):
    """Cut documents at the last sentence start within a limit, else word start, else at the limit.

    The limit is `room` tokens. The first stretch of a longer document has a limit drawn from 1 to `room`.
    Each other stretch has such a limit with probability `short_share`, unless that would cut a sentence that
    fits. The rows of `stretches`, int64 (m, 3), get the document's place in `starts`, begin and end. Returns
    the number of stretches, which may exceed m.
    """
    n = 0
    preferred = sentence_bits if sentences else word_bits
    for place in range(len(starts)):
        start, end = starts[place], ends[place]
        begin = start
        while begin < end:
            whole = end - begin <= room
            limit = room
            first = begin == start and not whole
            if first or short_share > 0:
                draw = mix_word(keys[place] + np.uint64(begin - start))
                if first or upper_uniform(draw) < short_share:
                    limit = 1 + int(lower_uniform(draw) * room)
            cut = end
            if end - begin > limit:
                cut = _last_bit(preferred, begin, begin + limit)
                if cut == begin:
                    # No border lies within the short limit. Prefer a longer stretch to cutting a sentence.
                    cut = end if whole else _last_bit(preferred, begin, begin + room)
                # A sentence longer than a sequence is cut at a word, within the limit if possible.
                if cut == begin:
                    cut = _last_bit(word_bits, begin, begin + limit)
                if cut == begin:
                    cut = _last_bit(word_bits, begin, begin + room)
                if cut == begin:
                    cut = begin + limit
            if n < len(stretches):
                stretches[n] = place, begin, cut
            n += 1
            begin = cut
    return n


def cut_documents(
    corpus: Corpus, documents: ndarray, room: int, config: SequencesConfig, key: np.uint64
) -> Stretches:
    """Cut documents into stretches.

    Args:
        documents: int64 (n,), ascending indices over the whole corpus (shard after shard).
        room: the most tokens of a stretch (at least 1).
        key: decides where documents are cut first, and which stretches are short.

    Raises:
        BrimfulError: a shard's offsets are damaged.
    """
    first = np.cumsum([0, *(shard.documents for shard in corpus.shards)])  # the first document of each shard
    parts = [np.empty((4, 0), dtype=np.int64)]  # for a corpus or a block without documents
    for index, shard in enumerate(corpus.shards):
        low, high = np.searchsorted(documents, first[index : index + 2])
        own = documents[low:high]
        if not len(own):
            continue
        starts, ends = shard.ends(own - first[index])
        bits = shard.sentence_bits, shard.word_bits
        limits = room, config.kind != "chunks", config.short_share
        # A guess that is nearly always enough: two stretches for each `room` tokens, and for each document.
        n = 2 * len(own) + 2 * int((ends - starts).sum()) // room + 1
        stretches = np.empty((0, 3), dtype=np.int64)
        while n > len(stretches):
            stretches = np.empty((n, 3), dtype=np.int64)
            n = _cut(starts, ends, hash_words(key, own), *bits, *limits, stretches)
        place, begin, end = stretches[:n].T
        parts.append(np.stack([own[place], np.full(n, index), begin, end]))
    return Stretches(*np.concatenate(parts, axis=1))
