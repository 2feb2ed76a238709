"""Labelled examples: exactly B an update, each once an epoch, with its own target, packed within bounds."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from brimful.data.batch import PackedBatch
from brimful.data.examples import GRAIN, Examples, ExampleStream, encode_texts
from brimful.errors import BrimfulError
from builders.batches import check_invariants

PAD = 0


def make_examples(lengths: list[int], max_length: int) -> Examples:
    """Example i is i + 1 repeated; its label is i, its score i / 2, its segments alternate."""
    return Examples(
        tokens=[np.full(length, i + 1, dtype=np.int32) for i, length in enumerate(lengths)],
        segments=[np.arange(length, dtype=np.uint8) % 2 for length in lengths],
        targets={
            "label": np.arange(len(lengths)),
            "score": np.arange(len(lengths), dtype=np.float32) / 2,
        },
        max_length=max_length,
        pad=PAD,
    )


def contents(batch: PackedBatch, examples: Examples) -> list[int]:
    """The examples in a batch, checked against what they are."""
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


@settings(max_examples=25)
@given(
    st.lists(st.integers(2, 12), min_size=1, max_size=20),
    st.integers(1, 25),
    st.integers(12, 70),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_epochs_and_updates(lengths: list[int], B: int, tokens: int, fixed_shapes: bool, seed: int) -> None:
    examples = make_examples(lengths, 12)

    def stream(**ranks: int) -> ExampleStream:
        return ExampleStream(
            examples, sequences=B, tokens=tokens, seed=seed, fixed_shapes=fixed_shapes, **ranks
        )

    visits, shapes = [], set()
    cursor = stream().start()
    for _ in range(2 * len(lengths) // B + 2):
        batches, following = stream().take(json.loads(json.dumps(cursor)))
        found = [example for batch in batches for example in contents(batch, examples)]
        assert len(found) == B
        for batch in batches:
            assert batch.tokens.numel() == tokens if fixed_shapes else batch.tokens.numel() % GRAIN == 0
            assert batch.real_tokens <= tokens
            shapes.add((batch.tokens.numel(), batch.offsets.numel()))
        ranks = [stream(rank=rank, world=2).take(cursor) for rank in range(2)]
        assert all(end == following for _, end in ranks)
        for index, batch in enumerate(batches):
            share = ranks[index % 2][0]
            assert torch.equal(share[index // 2].tokens, batch.tokens)
        visits.append(found)
        cursor = following
    assert len(shapes) == 1 or not fixed_shapes
    # Updates follow the epochs' permutations: every prefix of whole epochs holds each example as often.
    counts = Counter(example for found in visits for example in found)
    assert max(counts.values()) - min(counts[i] for i in range(len(lengths))) <= 1
    if len(lengths) % B == 0:
        epoch = [example for found in visits[: len(lengths) // B] for example in found]
        assert sorted(epoch) == list(range(len(lengths)))


def test_order_is_new_each_epoch_and_for_each_seed(seed: int) -> None:
    examples = make_examples([3] * 200, 8)

    def epochs(seed: int) -> list[list[int]]:
        stream = ExampleStream(examples, sequences=200, tokens=64, seed=seed)
        cursor, orders = stream.start(), []
        for _ in range(2):
            batches, cursor = stream.take(cursor)
            orders.append([i for batch in batches for i in contents(batch, examples)])
        return orders

    first, second = epochs(seed)
    assert first != second
    assert epochs(seed) == [first, second]
    assert epochs(seed + 1)[0] != first


def test_micro_batches_are_few_and_full(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(2, 60, 500).tolist()
    examples = make_examples(lengths, 64)
    batches, _ = ExampleStream(examples, sequences=500, tokens=512, seed=seed).take(
        {"epoch": 0, "example": 0}
    )
    assert len(batches) <= -(-sum(lengths) // 512) + 1


def test_a_long_example_gets_its_room() -> None:
    """`tokens` below the longest example is raised to it."""
    examples = make_examples([50, 50, 2], 64)
    batches, _ = ExampleStream(examples, sequences=3, tokens=8, seed=0).take({"epoch": 0, "example": 0})
    assert sorted(i for batch in batches for i in contents(batch, examples)) == [0, 1, 2]
    assert all(batch.real_tokens <= 64 for batch in batches)


def test_unlabelled_texts() -> None:
    examples = make_examples([3, 4], 8)
    plain = Examples(examples.tokens, examples.segments, {}, 8, PAD)
    batch = plain.batch(np.array([1, 0]))
    assert batch.targets == {}
    assert batch.lengths == (4, 3)


def test_a_pair_that_is_no_text_is_named_and_the_tokenizer_stays_as_it_was() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 1, "?": 0}, "?"))
    tokenizer.enable_truncation(7)
    with pytest.raises(BrimfulError, match="text 1 is not a Unicode string: None"):
        encode_texts(tokenizer, ["a", "a"], ["a", None], max_length=8, pad=PAD)  # type: ignore[list-item]
    assert tokenizer.truncation["max_length"] == 7
    assert len(encode_texts(tokenizer, ["a", "a"], ["a", "?"], max_length=8, pad=PAD)) == 2


@pytest.mark.parametrize("slots", [5, 6, 7])
def test_a_fixed_batch_of_the_shortest_examples(slots: int) -> None:
    """Filler needs a sequence slot beside as many of the shortest examples as fit."""
    examples = make_examples([2] * (slots // 2), 8)
    check_invariants(examples.batch(np.arange(slots // 2), slots))
