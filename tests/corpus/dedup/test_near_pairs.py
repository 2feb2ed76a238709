"""Near duplicates between two lists: what is found is as alike as claimed, and what is alike is found."""

import random

import numpy as np

from brimful.corpus.dedup.near_pairs import LEAST, jaccard, near_pairs, signatures


def runs(text: str) -> set[bytes]:
    data = text.encode()
    return {data[i : i + 8] for i in range(len(data) - 7)}


def reference(first: str, second: str) -> float:
    ours, theirs = runs(first), runs(second)
    return len(ours & theirs) / max(len(ours | theirs), 1)


def made_up(draw: random.Random, count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz 的了不是我有这个人在"
    return ["".join(draw.choices(letters, k=draw.randint(0, 120))) for _ in range(count)]


def test_the_similarity_is_that_of_the_sets_of_eight_bytes(seed: int) -> None:
    draw = random.Random(seed)
    for text in made_up(draw, 30):
        place = draw.randint(0, len(text))
        other = text[:place] + "改 x" + text[place:]
        assert jaccard(text, other) == reference(text, other)


def test_changed_copies_are_found_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    known = made_up(draw, 400)
    copies = [text[:-1] + "。" for text in known if len(text) > 60][:80]
    asked = [*made_up(draw, 200), *copies, "", "short"]
    match, alike = near_pairs(known, asked)
    for text, index, similarity in zip(asked, match.tolist(), alike.tolist(), strict=True):
        if index < 0:
            assert similarity == 0
        else:
            assert similarity == reference(text, known[index]) >= LEAST
    assert (match[:200] == -1).all()
    assert (match[200:-2] >= 0).mean() > 0.95
    assert (match[-2:] == -1).all()


def test_equal_texts_have_equal_signatures_wherever_they_stand() -> None:
    first = signatures(["abcdefghij", "x", "", "好的好的好的"])
    again = signatures(["好的好的好的", "abcdefghij"])
    assert (first[[3, 0]] == again).all()
    assert (first[1:3] == np.iinfo(np.uint64).max).all()


def test_empty_lists() -> None:
    for known, asked in ([], ["a" * 20]), (["a" * 20], []), (["a"], ["a"]):
        match, alike = near_pairs(known, asked)
        assert (match == -1).all()
        assert not alike.any()
        assert len(match) == len(asked)
