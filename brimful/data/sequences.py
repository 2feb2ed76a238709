"""Documents -> sequences: whole sentences of one document, at most so many tokens (RoBERTa's FULL-SENTENCES
within document borders; Liu et al., 2019, section 4.2).

A sequence is a range of a shard's tokens, so nothing is copied and lengths are known without reading a
token. Every token of every document is in exactly one sequence; no tail is dropped.
"""

from dataclasses import dataclass

import numpy as np

from brimful.compiled import compiled
from brimful.corpus.shards import Corpus

SPECIAL_TOKENS = 2
"""[CLS] before a sequence and [SEP] after it."""


@dataclass(frozen=True)
class Sequences:
    """Ranges of tokens.

    Attributes:
        shard: uint32 (n,), index into the corpus's shards.
        begin: int64 (n,), first token within the shard.
        length: int32 (n,), tokens including the special ones.
    """

    shard: np.ndarray
    begin: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.begin)

    def identity(self, index: np.ndarray) -> np.ndarray:
        """uint64: what names these sequences for keyed draws, whatever the order or packing."""
        return (self.shard[index].astype(np.uint64) << np.uint64(48)) | self.begin[index].astype(np.uint64)


@compiled
def _bit(bits: np.ndarray, index: int) -> bool:
    return (bits[index >> 3] >> (index & 7)) & 1 != 0


@compiled
def _cut(
    offsets: np.ndarray,
    documents: np.ndarray,
    sentence_bits: np.ndarray,
    word_bits: np.ndarray,
    room: int,
    begins: np.ndarray,
    ends: np.ndarray,
) -> int:
    """Cut `documents` at the last sentence start within `room` tokens, else word start, else anywhere."""
    n = 0
    for document in documents:
        begin, end = offsets[document], offsets[document + 1]
        while begin < end:
            cut = end
            if end - begin > room:
                cut = begin + room
                while cut > begin and not _bit(sentence_bits, cut):
                    cut -= 1
                if cut == begin:
                    cut = begin + room
                    while cut > begin and not _bit(word_bits, cut):
                        cut -= 1
                if cut == begin:
                    cut = begin + room
            if n < len(begins):
                begins[n], ends[n] = begin, cut
            n += 1
            begin = cut
    return n


def cut_documents(corpus: Corpus, documents: np.ndarray, max_length: int) -> Sequences:
    """The sequences of these documents, in the order of the documents.

    Args:
        documents: int64 (n,), ascending indices over the whole corpus (shard after shard).
        max_length: the most tokens of a sequence, special tokens included (at least 3).
    """
    room = max_length - SPECIAL_TOKENS
    first = np.cumsum([0] + [shard.documents for shard in corpus.shards])
    parts = []
    for index, shard in enumerate(corpus.shards):
        low, high = np.searchsorted(documents, first[index : index + 2])
        local = np.asarray(documents[low:high] - first[index], dtype=np.int64)
        if not len(local):
            continue
        offsets = np.asarray(shard.offsets, dtype=np.int64)
        arguments = (offsets, local, shard.sentence_bits, shard.word_bits, room)
        guess = len(local) + int((offsets[local + 1] - offsets[local]).sum()) // max(room // 2, 1) + 1
        begins, ends = np.empty(guess, dtype=np.int64), np.empty(guess, dtype=np.int64)
        n = _cut(*arguments, begins, ends)
        if n > guess:
            begins, ends = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
            _cut(*arguments, begins, ends)
        begins, ends = begins[:n], ends[:n]
        parts.append(
            (np.full(n, index, dtype=np.uint32), begins, (ends - begins + SPECIAL_TOKENS).astype(np.int32))
        )
    if not parts:
        return Sequences(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int32))
    return Sequences(*(np.concatenate(column) for column in zip(*parts, strict=True)))
