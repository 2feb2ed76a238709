"""Near duplicates between two lists: what is found is as alike as claimed, and what is alike is found."""

import functools
import random
from itertools import combinations

import numpy as np
import pytest

from brimful.corpus.dedup import near_pairs as module
from brimful.corpus.dedup.near_pairs import MIN_SIMILARITY, find_near_groups, find_near_pairs


@functools.cache
def runs(text: str) -> set[bytes]:
    data = text.encode()
    return {data[i : i + 8] for i in range(len(data) - 7)}


def reference(first: str, second: str) -> float:
    ours, theirs = runs(first), runs(second)
    return len(ours & theirs) / max(len(ours | theirs), 1)


def made_up(draw: random.Random, count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz 的了不是我有这个人在"
    return ["".join(draw.choices(letters, k=draw.randint(0, 120))) for _ in range(count)]


def test_changed_copies_are_found_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    known = made_up(draw, 400)
    copies = [text[:-1] + "。" for text in known if len(text) > 60][:80]
    asked = [*made_up(draw, 200), *copies, "", "short"]
    match, alike = find_near_pairs(known, asked)
    for text, index, similarity in zip(asked, match.tolist(), alike.tolist(), strict=True):
        if index < 0:
            assert similarity == 0
        else:
            assert similarity == reference(text, known[index]) >= MIN_SIMILARITY
    assert (match[:200] == -1).all()
    assert (match[200:-2] >= 0).mean() > 0.95
    assert (match[-2:] == -1).all()


def test_equal_texts_have_equal_signatures_wherever_they_stand() -> None:
    first = module.signatures(["abcdefghij", "x", "好的好的好的"])
    again = module.signatures(["好的好的好的", "abcdefghij"])
    assert (first[[2, 0]] == again).all()


def templated(draw: random.Random, count: int, own: int) -> list[str]:
    """Texts of one template, of which `own` letters are theirs."""
    letters = "abcdefghijklmnopqrstuvwxyz "
    frame = ["".join(draw.choices(letters, k=34)) for _ in range(4)]
    return ["".join(part + "".join(draw.choices(letters, k=own)) for part in frame) for _ in range(count)]


def parts_of(groups: np.ndarray, texts: list[str]) -> set[frozenset[str]]:
    return {frozenset(np.array(texts)[groups == group].tolist()) for group in set(groups.tolist())}


def test_few_equal_hashes_spare_a_comparison_and_change_no_group(seed: int) -> None:
    draw, found = random.Random(seed), []
    for _ in range(3):  # in one list, a group that is found in two parts costs 8 of 100 pairs
        texts = [*made_up(draw, 60), *templated(draw, 100, 20), *templated(draw, 20, 1)]
        texts += [text[:-1] + "。" for text in texts[::4]]
        groups = find_near_groups(texts, np.arange(len(texts)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "MIN_EQUAL_HASHES", 0)
            assert find_near_groups(texts, np.arange(len(texts))).tolist() == groups.tolist()
        for one, other in combinations(range(len(texts)), 2):
            if reference(texts[one], texts[other]) >= 0.75:
                found.append(groups[one] == groups[other])
    assert np.mean(found) > 0.9


def test_the_order_of_texts_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    texts = [*templated(draw, 120, 2), *made_up(draw, 50)]
    texts = list(dict.fromkeys(texts))  # similar by 0.6 to 0.7: a band's texts decide which groups there are
    asked = [text[:-1] + "。" for text in texts[::3]]
    groups, (match, alike) = find_near_groups(texts, np.arange(len(texts))), find_near_pairs(texts, asked)
    for _ in range(3):
        shuffled = draw.sample(texts, len(texts))
        again = find_near_groups(shuffled, np.arange(len(texts)))
        assert parts_of(again, shuffled) == parts_of(groups, texts)
        other, nearness = find_near_pairs(shuffled, asked)
        assert (nearness == alike).all()
        assert [shuffled[i] for i in other[other >= 0]] == [texts[i] for i in match[match >= 0]]
