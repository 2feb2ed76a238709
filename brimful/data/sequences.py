"""Documents -> sequences: whole sentences of one document up to a limit (RoBERTa's DOC-SENTENCES; Liu et al.
2019, section 4.2), plain chunks, or pairs of segments (`pairs`).

A sequence is one or two ranges of a shard's tokens, so nothing is copied and lengths are known without
reading a token. Every token of every document is in exactly one sequence of an epoch; no tail is dropped.
The first cut of a document is drawn anew each epoch, so that borders move.
"""

from dataclasses import dataclass, fields

import numpy as np

from brimful.base.compiled import compiled
from brimful.base.draws import mix_word
from brimful.base.randomness import hash_words
from brimful.corpus.shards import Corpus
from brimful.data.config import SPECIAL_TOKENS, SequencesConfig

_UNIT = 1.0 / (1 << 32)
_S32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def _names(shard: np.ndarray, begin: np.ndarray) -> np.ndarray:
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

    shard: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    second_shard: np.ndarray
    second_begin: np.ndarray
    second_length: np.ndarray
    pair: np.ndarray

    def __len__(self) -> int:
        return len(self.begin)

    def identity(self, index: np.ndarray) -> np.ndarray:
        """uint64: keys of these sequences, for draws."""
        return _names(self.shard[index], self.begin[index])


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


def single_segments(shard: np.ndarray, begin: np.ndarray, tokens: np.ndarray) -> Sequences:
    """Sequences without pairs; `tokens` (n,) are their lengths without special tokens."""
    return Sequences(
        shard.astype(np.uint32),
        begin.astype(np.int64),
        (tokens + SPECIAL_TOKENS).astype(np.int32),
        np.empty(0, np.uint32),
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        np.empty(0, np.int8),
    )


@dataclass(frozen=True)
class Stretches:
    """Ranges of tokens that documents are cut into, in the order of the documents.

    Attributes:
        document: int64 (n,), index over the whole corpus.
        shard: uint32 (n,).
        begin, end: int64 (n,), within the shard.
    """

    document: np.ndarray
    shard: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    def identity(self) -> np.ndarray:
        """uint64 (n,): keys of the stretches, for draws."""
        return _names(self.shard, self.begin)


@compiled
def _last_bit(bits: np.ndarray, low: int, high: int) -> int:
    """The last index in low + 1 ... high whose bit is set, else `low`."""
    index = high
    while index > low and not (bits[index >> 3] >> (index & 7)) & 1:
        index -= 1
    return index


@compiled
def _cut(
    starts: np.ndarray,
    ends: np.ndarray,
    keys: np.ndarray,
    sentence_bits: np.ndarray,
    word_bits: np.ndarray,
    room: int,
    sentences: bool,
    short_share: float,
    stretches: np.ndarray,
) -> int:
    """Cut documents at the last sentence start within a limit, else word start, else at the limit.

    The limit is `room` tokens. The first stretch of a longer document has a limit drawn from 1 to `room`, and
    so has each other stretch with probability `short_share`, unless that would cut a sentence that fits. The
    rows of `stretches`, int64 (m, 3), get the document's place in `starts`, begin and end. Returns the number
    of stretches, which may exceed m.
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
                if first or np.float64(draw >> _S32) * _UNIT < short_share:
                    limit = 1 + int(np.float64(draw & _LOW) * _UNIT * room)
            cut = end
            if end - begin > limit:
                cut = _last_bit(preferred, begin, begin + limit)
                if cut == begin:
                    cut = end if whole else _last_bit(preferred, begin, begin + room)
                # A sentence longer than a sequence: it is cut in stretches, which need not be full either.
                if cut == begin:
                    cut = _last_bit(word_bits, begin, begin + limit)
                if cut == begin:
                    cut = _last_bit(word_bits, begin, begin + room)
                if cut == begin:
                    cut = begin + limit
            if n < len(stretches):
                stretches[n, 0], stretches[n, 1], stretches[n, 2] = place, begin, cut
            n += 1
            begin = cut
    return n


def cut_documents(
    corpus: Corpus, documents: np.ndarray, room: int, config: SequencesConfig, key: np.uint64
) -> Stretches:
    """The stretches of these documents.

    Args:
        documents: int64 (n,), ascending indices over the whole corpus (shard after shard).
        room: the most tokens of a stretch (at least 1).
        key: decides where documents are cut first, and which stretches are short.

    Raises:
        BrimfulError: a shard's offsets are damaged.
    """
    first = np.cumsum([0] + [shard.documents for shard in corpus.shards])
    parts = [Stretches(*(np.empty(0, dtype) for dtype in (np.int64, np.uint32, np.int64, np.int64)))]
    for index, shard in enumerate(corpus.shards):
        low, high = np.searchsorted(documents, first[index : index + 2])
        local = np.asarray(documents[low:high] - first[index], dtype=np.int64)
        if not len(local):
            continue
        starts, ends = shard.ends(local)
        arguments = (
            *(starts, ends, hash_words(key, documents[low:high])),
            *(np.asarray(shard.sentence_bits), np.asarray(shard.word_bits)),
            *(room, config.kind != "chunks", config.short_share),
        )
        tokens = int((ends - starts).sum())
        stretches = np.empty((2 * len(local) + 2 * tokens // room + 1, 3), dtype=np.int64)
        n = _cut(*arguments, stretches)
        if n > len(stretches):
            stretches = np.empty((n, 3), dtype=np.int64)
            _cut(*arguments, stretches)
        place, begin, end = stretches[:n].T
        parts.append(Stretches(documents[low:high][place], np.full(n, index, np.uint32), begin, end))
    return Stretches(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Stretches)))
