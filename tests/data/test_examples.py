"""Labelled examples: exactly B in an update, each once in an epoch, with its own target, in full batches."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch
from brimful.data.example_batches import make_batch, round_up_tokens
from brimful.data.example_stream import ExampleStream
from brimful.data.examples import Examples, encode_texts
from brimful.data.ragged import Ragged
from builders.batches import check_invariants

PAD = 0


def make_examples(lengths: list[int], max_length: int) -> Examples:
    """Example i is i + 1 repeated; its label is i, its score i / 2, its segments alternate."""
    return Examples(
        tokens=[np.full(length, i + 1, dtype=np.int32) for i, length in enumerate(lengths)],
        segments=[np.arange(length, dtype=np.uint8) % 2 for length in lengths],
        targets={"label": np.arange(len(lengths)), "score": np.arange(len(lengths), dtype=np.float32) / 2},
        max_length=max_length,
        pad=PAD,
    )


def contents(batch: PackedBatch, examples: Examples) -> list[int]:
    check_invariants(batch)
    assert batch.sequence_index is not None
    assert len(batch.sequence_index) == batch.real_sequences
    offsets = batch.offsets.tolist()
    found = []
    for place, example in enumerate(batch.sequence_index.tolist()):
        part = slice(offsets[place], offsets[place + 1])
        assert batch.tokens[part].tolist() == examples.tokens[example].tolist()
        assert batch.segments[part].tolist() == examples.segments[example].tolist()
        assert batch.targets["label"][place] == example
        assert batch.targets["score"][place] == example / 2
        found.append(example)
    assert (batch.tokens[batch.real_tokens :] == PAD).all()
    assert batch.targets["label"].dtype == torch.int64
    assert batch.targets["score"].dtype == torch.float32
    return found


@settings(max_examples=10)
@given(
    st.lists(st.integers(2, 12), min_size=1, max_size=20),
    st.fixed_dictionaries({"sequences": st.integers(1, 25), "tokens": st.integers(8, 70)}),
    st.fixed_dictionaries({"fixed_shapes": st.booleans(), "seed": st.integers(0, 2**31)}),
)
def test_epochs_and_updates(lengths, sizes, settings):
    """A micro-batch has room for the longest example."""
    examples, B, tokens = make_examples(lengths, 12), sizes["sequences"], max(12, sizes["tokens"])

    def stream(**ranks: int) -> ExampleStream:
        return ExampleStream(examples, **sizes, **settings, **ranks)

    visits, shapes = [], set()
    cursor = stream().start()
    for _ in range(2 * len(lengths) // B + 2):
        batches, following = stream().take(json.loads(json.dumps(cursor)))
        found = [example for batch in batches for example in contents(batch, examples)]
        assert len(found) == B
        for batch in batches:
            T = batch.tokens.numel()
            assert tokens == T if settings["fixed_shapes"] else round_up_tokens(batch.real_tokens) == T
            assert batch.real_tokens <= tokens
            shapes.add((batch.tokens.numel(), batch.offsets.numel()))
        ranks = [stream(rank=rank, world=2).take(cursor) for rank in range(2)]
        assert all(end == following for _, end in ranks)
        for index, batch in enumerate(batches):
            share = ranks[index % 2][0]
            assert torch.equal(share[index // 2].tokens, batch.tokens)
        visits.append(found)
        cursor = following
    assert len(shapes) == 1 or not settings["fixed_shapes"]
    # Updates follow the epochs' permutations: every prefix of whole epochs holds each example as often.
    counts = Counter(example for found in visits for example in found)
    assert max(counts.values()) - min(counts[i] for i in range(len(lengths))) <= 1
    if len(lengths) % B == 0:
        epoch = [example for found in visits[: len(lengths) // B] for example in found]
        assert sorted(epoch) == list(range(len(lengths)))


def test_order_is_new_each_epoch_and_for_each_seed(seed):
    examples = make_examples([3] * 200, 8)

    def order(epoch: int, seed: int) -> list[int]:
        stream = ExampleStream(examples, sequences=200, tokens=64, seed=seed)
        batches, _ = stream.take({"epoch": epoch, "example": 0})
        return [i for batch in batches for i in contents(batch, examples)]

    assert order(0, seed) == order(0, seed)
    assert order(0, seed) not in (order(1, seed), order(0, seed + 1))


def test_a_pair_that_is_no_text_is_named_and_the_tokenizer_stays_as_it_was():
    tokenizer = Tokenizer(models.WordLevel({"a": 1, "?": 0}, "?"))
    tokenizer.enable_truncation(7)
    with pytest.raises(BrimfulError, match="text 1 is not a Unicode string: None"):
        encode_texts(tokenizer, ["a", "a"], ["a", None], max_length=8, pad=PAD)
    assert tokenizer.truncation["max_length"] == 7
    assert len(encode_texts(tokenizer, ["a", "a"], ["a", "?"], max_length=8, pad=PAD)) == 2


@pytest.mark.parametrize("slots", [5, 6, 7])
def test_a_fixed_batch_of_the_shortest_examples(slots):
    """Filler needs a sequence slot, also where a batch has as many of the shortest examples as fit."""
    examples = make_examples([2] * (slots // 2), 8)
    check_invariants(make_batch(examples, np.arange(slots // 2), slots))


WORDS = Tokenizer(models.WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "a": 4, "b": 5}, "[UNK]"))
WORDS.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
WORDS.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(4, 12), st.integers(0, 8), st.booleans()
)
def test_windows_hold_every_token_of_a_text(words, max_length, overlap, pairs):
    random = np.random.default_rng(sum(words))
    texts = [" ".join(random.choice(["a", "bb", "c"], n)) for n in words]
    room = max_length - (4 if pairs else 2)
    second = texts if pairs else None
    firsts = ["b"] * len(texts) if pairs else texts

    def encoded() -> Examples:
        options = {"characters": True, "targets": {"label": np.arange(len(texts))}, "overlap": overlap}
        return encode_texts(WORDS, firsts, second, max_length=max_length, pad=PAD, **options)

    if overlap >= (room + pairs):
        with pytest.raises(BrimfulError, match="windows of"):
            encoded()
        return
    if overlap >= room and max(words) > room:
        with pytest.raises(BrimfulError, match="the first text has 1 tokens"):
            encoded()
        return
    examples = encoded()
    assert examples.cut == 0
    assert (examples.lengths <= max_length).all()
    assert examples.targets["label"].tolist() == examples.text_of_example.tolist()
    for text in range(len(texts)):
        windows = np.flatnonzero(examples.text_of_example == text)
        spans = [[tuple(p) for p in examples.characters[i] if p[0] >= 0] for i in windows]
        for before, after in pairwise(spans):
            assert len(before) == room
            assert before[len(before) - overlap :] == after[:overlap]
        found = [pair for span in spans for pair in span]
        assert [texts[text][a:b] for a, b in sorted(set(found))] == texts[text].split()
    chosen = random.permutation(len(texts))
    taken = examples.take_texts(chosen)
    assert taken.text_of_example.tolist() == sorted(taken.text_of_example.tolist())
    assert taken.targets["label"].tolist() == [chosen[i] for i in taken.text_of_example]
    for i, owner in enumerate(taken.text_of_example):
        place = i - taken.first_of_text[owner] + examples.first_of_text[chosen[owner]]
        assert taken.tokens[i].tolist() == examples.tokens[place].tolist()
        assert taken.characters[i].tolist() == examples.characters[place].tolist()


def test_texts_that_are_cut_are_counted():
    examples = encode_texts(WORDS, ["a a a", "a", "a a a a"], max_length=4, pad=PAD)
    assert (examples.cut, examples.lengths.tolist()) == (2, [4, 3, 4])


@pytest.mark.parametrize("overlap", [0, 2])
def test_a_pair_without_room_for_windows_is_named(overlap, capfd):
    """Of 8 tokens, 3 are special. `tokenizers` panics where the second text has no more room than the
    overlap."""

    def encoded(first: int, second: int) -> Examples:
        firsts, seconds = ["b"] * 9, ["a"] * 9
        firsts[5], seconds[5] = "b " * first, "a " * second
        where = "row {}".format
        options = {"max_length": 8, "pad": PAD, "overlap": overlap, "where": where}
        return encode_texts(WORDS, firsts, seconds, **options)

    for first in range(9):
        for second in range(9):
            if first + second <= 5 or first + overlap < 5:
                windows = np.bincount(encoded(first, second).text_of_example)
                left = max(first + second - 5, 0)
                assert windows[5] == 1 + -(-left // (5 - first - overlap) if left else 0)
            else:
                with pytest.raises(BrimfulError, match=f"^row 5: the first text has {first} tokens"):
                    encoded(first, second)
    assert "panicked" not in capfd.readouterr().err
    assert WORDS.truncation is None


def test_targets_of_tokens_stand_at_their_tokens():
    tokens = [np.arange(n, dtype=np.int32) for n in (3, 1, 2)]
    types = [np.zeros(n, dtype=np.uint8) for n in (3, 1, 2)]
    targets = {
        "tags": Ragged.of([np.array(tags) for tags in ([1, 2, 3], [4], [5, 6])], np.int64),
        "spans": np.array([[0, 1], [2, 3], [4, 5]]),
    }
    batch = make_batch(Examples(tokens, types, targets, max_length=3, pad=PAD), np.array([2, 0]), 7, 5)
    assert batch.targets["tags"].tolist() == [5, 6, 1, 2, 3, -100, -100]
    assert batch.targets["spans"].tolist() == [[4, 5], [0, 1], [-100, -100], [-100, -100], [-100, -100]]


def test_token_types_are_those_of_the_examples_taken():
    segments = Ragged.of([np.zeros(2), np.array([0, 1, 1]), np.zeros(4)], np.uint8)
    examples = Examples(segments, segments, targets={}, max_length=8, pad=PAD)
    for taken, typed in (([0, 1, 2], True), ([1], True), ([2, 0], False), ([], False)):
        assert examples.take_texts(np.array(taken, dtype=np.int64)).typed == typed
    assert make_examples([1, 2], 4).typed  # whose segments are a list


def test_few_tokens_get_little_filler_and_few_shapes():
    sizes = [round_up_tokens(tokens) for tokens in range(1, 4097)]
    assert all(0 <= size - tokens < max(32, 0.25 * tokens) for tokens, size in enumerate(sizes, 1))
    assert len(set(sizes)) == 8 + 4 + 28
