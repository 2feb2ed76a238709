"""Drawn copies: what the table says and nothing else, as often as in TinyBERT, the same for all ranks."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.data.augmented import (
    PLACES,
    AugmentedExamples,
    Replacements,
    copy_keys,
    picked,
)
from brimful.data.example_stream import ExampleStream
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.errors import BrimfulError

CLS, SEP = 1, 2


def made(
    fields: list[list[list[int]]],
    words: dict[tuple[int, int], list[int]],
    pool: list[list[int]],
    *,
    max_length: int = 64,
    copies: int = 3,
    rate: float = 0.4,
) -> AugmentedExamples:
    """Examples [CLS] first [SEP] (second [SEP]).

    Args:
        fields: of each example the words of each text, each of one token.
        words: (text, word of the text, counted over both fields) -> candidates in `pool`.
    """
    tokens, types, ranges = [], [], []
    flat: dict[str, list[int]] = {name: [] for name in ("begins", "fields", "numbers", "rows")}
    counts = []
    choices: list[list[int]] = []
    for example, texts in enumerate(fields):
        ids, kinds, parts, seen = [CLS], [0], np.zeros((2, 2), np.int32), 0
        before = len(flat["begins"])
        for field, text in enumerate(texts):
            parts[field] = len(ids), len(ids) + len(text)
            for number, token in enumerate(text):
                if (example, seen) in words:
                    flat["begins"].append(len(ids))
                    flat["fields"].append(field)
                    flat["numbers"].append(number)
                    flat["rows"].append(len(choices))
                    choices.append(words[example, seen])
                ids.append(token)
                kinds.append(field)
                seen += 1
            ids.append(SEP)
            kinds.append(field)
        tokens.append(np.array(ids, np.int32))
        types.append(np.array(kinds, np.uint8))
        ranges.append(parts)
        counts.append(len(flat["begins"]) - before)
    most = max(map(len, choices), default=1)
    table = np.full((len(choices), most), -1, np.int32)
    for row, found in enumerate(choices):
        table[row, : len(found)] = found
    size = len(flat["begins"])
    return AugmentedExamples(
        Examples(tokens, types, {"label": np.arange(len(fields))}, max_length, 0),
        Replacements(
            offsets=np.cumsum([0, *counts]),
            begins=np.array(flat["begins"], np.int32),
            lengths=np.ones(size, np.int32),
            fields=np.array(flat["fields"], np.uint8),
            numbers=np.array(flat["numbers"], np.int32),
            rows=np.array(flat["rows"], np.int64),
            places=np.arange(size).astype(np.uint8) % PLACES,
            choices=table,
            counts=(table >= 0).sum(1).astype(np.int32),
            tokens=Ragged.of([np.array(p, np.int32) for p in pool for _ in range(PLACES)], np.int32),
            ranges=np.array(ranges, np.int32),
            texts=np.arange(len(fields)),
        ),
        copies=copies,
        rate=rate,
    )


@given(st.data())
def test_copies_are_the_texts_with_the_picked_candidates(data) -> None:
    """Against a plain loop: the field that changes, the picks, the pieces of candidates, the cut."""
    pairs = data.draw(st.booleans())
    text = st.lists(st.integers(10, 40), min_size=1, max_size=6)
    fields = data.draw(
        st.lists(st.lists(text, min_size=1 + pairs, max_size=1 + pairs), min_size=1, max_size=4)
    )
    pool = data.draw(st.lists(st.lists(st.integers(50, 90), min_size=1, max_size=4), min_size=1, max_size=5))
    words = {
        (example, word): data.draw(st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=4))
        for example, texts in enumerate(fields)
        for word in range(sum(map(len, texts)))
        if data.draw(st.booleans())
    }
    longest = max(sum(map(len, texts)) + 1 + len(texts) for texts in fields)
    rate, seed = data.draw(st.sampled_from([0.0, 0.4, 1.0])), data.draw(st.integers(0, 2**40))
    copies, epoch = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 5))
    examples = made(fields, words, pool, max_length=longest, copies=copies, rate=rate)
    index = np.arange(len(examples))
    shown, places = examples.drawn(seed, np.full(len(index), epoch), index)
    assert (places == index).all()
    variants = sorted({(example, int(word >= len(fields[example][0]))) for example, word in words})
    assert len(examples) == len(fields) + copies * len(variants)
    expected_cut = 0
    for number in range(len(examples)):
        example, field, copy = number, 2, 0
        if number >= len(fields):
            copy, which = divmod(number - len(fields), len(variants))
            example, field = variants[which]
        key = copy_keys(seed, epoch, example, field, np.array(copy))
        texts, seen = [], 0
        for which, original in enumerate(fields[example]):
            out = []
            for place, token in enumerate(original):
                found = words.get((example, seen))
                seen += 1
                pick = -1
                if found and which == field:
                    pick = int(picked(key, np.array([place]), np.array([len(found)]), rate)[0])
                out.append([token] if pick < 0 else pool[found[pick]])
            texts.append([token for part in out for token in part])
        total = sum(map(len, texts)) + 1 + len(texts)
        expected_cut += total > longest and number >= len(fields)
        for _ in range(total - longest):
            longer = 0 if len(texts) == 1 or len(texts[0]) > len(texts[1]) else 1
            texts[longer].pop()
        ids, types = [CLS], [0]
        for which, its in enumerate(texts):
            ids += [*its, SEP]
            types += [which] * (len(its) + 1)
        assert shown.tokens[number].tolist() == ids
        assert shown.segments[number].tolist() == types
        assert shown.targets["label"][number] == example
        assert examples.origins(np.array([number])).tolist() == [example]
    assert examples.cut(seed, epoch) == expected_cut


def test_the_distribution_is_that_of_the_paper() -> None:
    """Each word is replaced with probability p, and each candidate is as likely as the others: within four
    standard deviations of 40,000 words."""
    texts, width, choices, rate = 500, 8, 5, 0.4
    pool = [[50 + code] for code in range(choices)]
    examples = made(
        [[[10] * width] for _ in range(texts)],
        {(text, word): list(range(choices)) for text in range(texts) for word in range(width)},
        pool,
        copies=10,
        rate=rate,
    )
    index = np.arange(texts, len(examples))
    drawn = []
    for epoch in (0, 1):
        shown, _ = examples.drawn(0, np.full(len(index), epoch), index)
        drawn.append(np.stack(list(shown.tokens))[:, 1:-1])
    for tokens in drawn:
        total = tokens.size
        replaced = (tokens != 10).sum()
        assert abs(replaced - rate * total) < 4 * (total * rate * (1 - rate)) ** 0.5
        counts = Counter(tokens[tokens != 10].tolist())
        each = 1 / choices
        for code in range(choices):
            assert abs(counts[50 + code] - replaced * each) < 4 * (replaced * each * (1 - each)) ** 0.5
        by_word = (tokens != 10).mean(0)
        assert np.abs(by_word - rate).max() < 4 * (rate * (1 - rate) / len(tokens)) ** 0.5
    both = ((drawn[0] != 10) & (drawn[1] != 10)).mean()  # epochs are independent
    assert abs(both - rate**2) < 4 * (rate**2 * (1 - rate**2) / drawn[0].size) ** 0.5
    pairs = (drawn[0][:, 0] != 10) & (drawn[0][:, 1] != 10)  # and so are words
    assert abs(pairs.mean() - rate**2) < 4 * (rate**2 * (1 - rate**2) / len(pairs)) ** 0.5


def stream(seed: int = 0, **options) -> ExampleStream:
    words = {(text, word): [0, 1, 2] for text in range(7) for word in range(4)}
    examples = made([[[10 + text] * 5] for text in range(7)], words, [[50], [51, 52], [53, 54, 55]])
    return ExampleStream(examples, sequences=4, tokens=64, seed=seed, **options)


@settings(max_examples=4)
@given(st.integers(0, 2**31), st.booleans())
def test_updates_are_the_same_for_any_ranks_and_after_a_resume(seed: int, fixed: bool) -> None:
    whole = stream(seed, fixed_shapes=fixed)
    cursor, seen = whole.start(), Counter[bytes]()
    for _ in range(9):
        batches, following = stream(seed, fixed_shapes=fixed).take(json.loads(json.dumps(cursor)))
        shares = [stream(seed, fixed_shapes=fixed, rank=rank, world=2).take(cursor)[0] for rank in range(2)]
        for number, batch in enumerate(batches):
            assert (shares[number % 2][number // 2].tokens == batch.tokens).all()
            for place, origin in enumerate(batch.sequence_index.tolist()):
                part = batch.tokens[batch.offsets[place] : batch.offsets[place + 1]]
                assert batch.targets["label"][place] == origin
                assert set(part[1:-1].tolist()) <= {10 + origin, *range(50, 56)}
                seen[part.numpy().tobytes()] += 1
        assert sum(batch.real_sequences for batch in batches) == 4
        cursor = following
    assert cursor["epoch"] == 1  # 28 examples are an epoch: 7 texts and 3 copies of each


def test_an_epoch_holds_each_text_and_each_copy_once() -> None:
    found, cursor = Counter[int](), stream().start()
    for _ in range(7):
        packed, cursor = stream().micro_batches(cursor)
        found.update(int(i) for part in packed for i in part)
    assert found == dict.fromkeys(range(7), 4)
    assert cursor == {"epoch": 1, "example": 0}


def test_labels_of_tokens_are_refused() -> None:
    one = made([[[10]]], {}, [[50]])
    tagged = Examples(
        one.examples.tokens,
        one.examples.segments,
        {"tags": Ragged.of([np.zeros(3)], np.int64)},
        64,
        0,
    )
    whole = replace(one.examples, texts=np.zeros(1, dtype=np.int64), together=True)
    with pytest.raises(BrimfulError, match="belong together"):
        AugmentedExamples(whole, one._of, copies=1, rate=0.5)
    with pytest.raises(BrimfulError, match="labels of tokens"):
        AugmentedExamples(tagged, one._of, copies=1, rate=0.4)
