"""Reading: micro-batches are those of a naive reader, whatever shards, tokenizers and neighbours."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models

from brimful.base.randomness import derive_key, hash_words
from brimful.base.types import IGNORED
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import SpecialIds, special_ids
from brimful.data.config import MaskingConfig
from brimful.data.masking import mask_tokens
from brimful.data.pairs import NO_PAIR
from brimful.data.reader import BlockSlice, SequenceReader, list_ordinary_ids
from brimful.data.sequences import Sequences, make_sequences
from builders.batches import check_invariants
from builders.corpora import batch_of, write_batches

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
MAX_LENGTH = 40


def word_level(size: int, special: tuple[str, ...] = BERT, *, extra: tuple[str, ...] = ()) -> Tokenizer:
    """A tokenizer whose special tokens are not in a row at the beginning."""
    names = [f"w{i}" for i in range(size - len(special) - len(extra))]
    for place, name in enumerate([*special, *extra]):
        names.insert(3 * place + 1, name)
    unknown = [name for name in special if "unk" in name.lower()]
    return Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, *unknown))


def make_corpus(directory: Path, size: int, seed: int) -> Corpus:
    """Three shards of random tokens, special ones among them."""
    draw, batches = np.random.default_rng(seed), []
    directory.mkdir()
    (directory / "tokenizer.json").write_text("{}")
    for _ in range(3):
        lengths = draw.integers(1, 60, 50)
        T = int(lengths.sum())
        # Half of the tokens are among the first ids, where the special ones are.
        tokens = np.where(draw.random(T) < 0.5, draw.integers(0, 20, T), draw.integers(0, size, T))
        batches.append(batch_of(tokens, *(draw.random((2, T)) < 0.5), lengths))
    return write_batches(directory, batches, size)


def random_ranges(corpus: Corpus, seed: int, *, paired: bool, n: int = 40) -> Sequences:
    """Sequences anywhere in the shards, of 1 to 37 tokens; of pairs, a third has one segment only."""
    draw, room = np.random.default_rng(seed), MAX_LENGTH - 3

    def places() -> tuple[np.ndarray, np.ndarray]:
        shards = draw.integers(0, len(corpus.shards), n)
        begins = [draw.integers(0, len(corpus.shards[s].tokens) - room) for s in shards]
        return shards.astype(np.uint32), np.array(begins)

    tokens = draw.integers(1, room + 1, n)
    shard, begin = places()
    if not paired:
        return make_sequences(shard=shard, begin=begin, length=tokens + 2)
    second = np.where(draw.random(n) < 1 / 3, 0, draw.integers(0, tokens)).astype(np.int32)
    length = (tokens + np.where(second > 0, 3, 2)).astype(np.int32)
    pair = np.where(second > 0, draw.integers(0, 2, n), NO_PAIR).astype(np.int8)
    return Sequences(shard, begin, length, *places(), second, pair)


def segment(corpus: Corpus, shard: int, begin: int, n: int) -> tuple[list[int], list[bool]]:
    source = corpus.shards[shard]
    words = source.word_starts(begin, begin + n).tolist()
    return source.tokens[begin : begin + n].tolist(), [True, *words[1:]]


def naive(part: BlockSlice, index: int, special: SpecialIds) -> tuple[list[int], list[int], list[bool]]:
    """Tokens, segments and word starts of a sequence."""
    s = part.sequences
    n = int(s.length[index])
    second = int(s.second_length[index]) if len(s.pair) else 0
    first = n - 3 - second if second else n - 2
    ids, words = segment(part.corpus, int(s.shard[index]), int(s.begin[index]), first)
    tokens, starts = [special.cls, *ids, special.sep], [True, *words, True]
    if second:
        ids, words = segment(part.corpus, int(s.second_shard[index]), int(s.second_begin[index]), second)
        tokens, starts = [*tokens, *ids, special.sep], [*starts, *words, True]
    assert len(tokens) == n
    return tokens, [0] * (first + 2) + [1] * (n - first - 2), starts


@pytest.mark.parametrize("shapes", [{}, {"slots": 1500, "sequence_slots": 90, "predictions": 100}])
@pytest.mark.parametrize(
    ("unit", "paired", "size"), [("words", False, 100), ("words", True, 70_000), ("tokens", True, 100)]
)
def test_a_batch_is_what_a_naive_reader_reads(tmp_path, seed, unit, paired, size, shapes):
    tokenizer = word_level(size)
    special = special_ids(tokenizer)
    corpora = [make_corpus(tmp_path / f"corpus-{i}", size, seed + i) for i in range(2)]
    assert corpora[0].shards[0].tokens.dtype == (np.uint16 if size == 100 else np.uint32)
    ranges = [random_ranges(corpus, seed + i, paired=paired) for i, corpus in enumerate(corpora)]
    draw = np.random.default_rng(seed)
    parts = [
        BlockSlice(corpora[i % 2], ranges[i % 2], chosen, derive_key(seed, i))
        for i, chosen in enumerate(np.split(draw.permutation(40)[:35], np.sort(draw.integers(0, 35, 3))))
    ]
    masking = MaskingConfig(unit=unit)
    reader = SequenceReader(tokenizer, masking)
    batch = reader.batch(parts, max_length=MAX_LENGTH, rate=0.3, **shapes)
    check_invariants(batch)
    assert batch.max_length == MAX_LENGTH

    read = [naive(part, int(index), special) for part in parts for index in part.chosen]
    tokens, segments, starts = (np.array([x for one in read for x in one[i]]) for i in range(3))
    assert batch.lengths[: batch.real_sequences] == tuple(len(one[0]) for one in read)
    assert batch.real_sequences == len(read) == 35
    assert batch.tokens.numel() == shapes.get("slots", len(tokens))
    assert len(batch.offsets) - 1 == shapes.get("sequence_slots", len(read))
    assert batch.segments.tolist() == [*segments.tolist(), *[0] * (batch.tokens.numel() - len(tokens))]
    assert (batch.tokens[len(tokens) :] == special.pad).all()

    identity = [
        int(part.sequences.shard[i]) << 48 | int(part.sequences.begin[i])
        for part in parts
        for i in part.chosen
    ]
    own = [part.key for part in parts for _ in part.chosen]
    shown = tokens.astype(np.int32)
    expected = mask_tokens(
        shown,
        np.cumsum([0, *(len(one[0]) for one in read)]),
        starts.astype(bool),
        ~np.isin(tokens, [special.pad, special.cls, special.sep, special.mask]),
        np.array([hash_words(key, np.array(i)) for key, i in zip(own, identity, strict=True)]),
        masking,
        reader.vocabulary,
        rate=0.3,
        slots=shapes.get("predictions"),
    )
    assert batch.tokens[: len(tokens)].tolist() == shown.tolist()
    assert batch.mlm_positions.tolist() == expected[0].tolist()
    assert batch.mlm_labels.tolist() == expected[1].tolist()
    assert batch.dropped_predictions == expected[2]
    assert batch.predictions == (batch.mlm_labels != IGNORED).sum() > 50

    if paired:
        targets = [int(part.sequences.pair[i]) for part in parts for i in part.chosen]
        assert {0, 1, NO_PAIR} == set(targets)
        room = len(batch.offsets) - 1 - len(targets)
        assert batch.targets["pair"].tolist() == targets + [IGNORED] * room
    else:
        assert batch.targets == {}


def test_nothing_to_read(tmp_path, seed):
    corpus = make_corpus(tmp_path / "corpus", 100, seed)
    ranges = random_ranges(corpus, seed, paired=True)
    none = BlockSlice(corpus, ranges, np.empty(0, np.int64), derive_key(seed))
    reader = SequenceReader(word_level(100), MaskingConfig())
    shapes = {"slots": 100, "sequence_slots": 5, "predictions": 8}
    for parts in ([], [none]):
        batch = reader.batch(parts, max_length=MAX_LENGTH, rate=0.3, **shapes)
        check_invariants(batch)
        assert (batch.real_sequences, batch.predictions, batch.dropped_predictions) == (0, 0, 0)
        assert (batch.tokens == special_ids(word_level(100)).pad).all()


@pytest.mark.parametrize("special", [BERT, ROBERTA, ("[PAD]", "[CLS]", "[SEP]", "[MASK]")])
def test_ordinary_ids(special):
    unused = (
        *("[unused1]", "[UNUSED_7]", "[reserved 3]", "<reserved_7>", "<extra_id_0>", "<unused12>"),
        *("<|reserved_special_token_5|>", "madeupword0001"),
    )
    tokenizer = word_level(200, special, extra=unused)
    tokenizer.add_special_tokens([AddedToken("[USER]", special=True)])
    tokenizer.add_tokens(["[unused]", "ordinary1", "[1]"])
    names = [tokenizer.id_to_token(i) for i in list_ordinary_ids(tokenizer)]
    words = {f"w{i}" for i in range(200 - len(special) - len(unused))}
    assert set(names) == words | {"[unused]", "ordinary1", "[1]"}
    assert len(names) == len(set(names))
    assert SequenceReader(tokenizer, MaskingConfig()).vocabulary.mask == tokenizer.token_to_id(special[-1])
