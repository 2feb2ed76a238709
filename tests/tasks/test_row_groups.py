"""Rows that are alike share a group, and a cut takes whole groups, the same proportion of each label."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.tables.question_files import QuestionTable
from brimful.tables.table import Table
from brimful.tasks.held_out_copies import find_held_out_copies
from brimful.tasks.judging.checks import find_overlap
from brimful.tasks.row_groups import cut_rows, group_alike_rows

WORDS = [f"{a}{b}{c}n" for a in "bdfgk" for b in "aeiou" for c in "lmrst"]


def table(texts: list[str], second: list[str] | None = None) -> Table:
    return Table(Path("table.tsv"), texts, second, None)


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(6, 14))) for _ in range(count)]


def test_what_does_not_tell_texts_apart() -> None:
    texts = [
        "The parcel 12345 has not arrived.",
        "the PARCEL  67890 has not arrived!!",
        "Ｔhe parcel 1 has not arrived",
        "The parcel 12345 has not arrived at all.",  # almost the same
        "Another text of which no word is there",
        *("w1", "w2", "W1 ", "!?", "??"),
    ]
    groups = group_alike_rows(table([*texts, *sentences(30, 1)]))
    assert groups.tolist()[:10] == [0, 0, 0, 0, 1, 2, 3, 2, 4, 5]


def test_numbers_count_in_a_table_of_templates(seed: int) -> None:
    """Twelve have less than a tenth of the table each; sixty are enough to cut, yet they are all of it."""
    draw = random.Random(seed)
    for templates, rows in ((1, 80), (12, 100), (60, 20)):
        logs = [
            f"{text} in {draw.randrange(10**6)} ms, {draw.randrange(10**6)} bytes"
            for text in sentences(templates, seed)
            for _ in range(rows)
        ]
        groups = group_alike_rows(table(logs))
        assert groups.max() + 1 >= 0.9 * len(set(logs)), templates
    copies = sentences(200, seed) * 2
    groups = group_alike_rows(table([f"{number} {text}" for number, text in enumerate(copies)]))
    assert (groups[:200] == groups[200:]).all(), "copies with other numbers stay together"


def test_pairs_are_alike_as_a_whole_and_questions_by_their_contexts() -> None:
    contexts = sentences(2, 3)
    pairs = table(["one", "two", "one"], [contexts[0], contexts[0], contexts[1]])
    assert group_alike_rows(table(["one", "One."], ["long enough"] * 2)).tolist() == [0, 0]
    assert group_alike_rows(pairs).tolist()[2] != group_alike_rows(pairs).tolist()[0]
    given = [contexts[0], contexts[0].upper() + ".", contexts[1]]
    questions = QuestionTable(Path("q.json"), ["who", "when", "where"], given, None, ids=["1", "2", "3"])
    assert group_alike_rows(questions).tolist() == [0, 0, 1]


def test_copies_of_held_out_rows_in_another_file() -> None:
    test = table(["A b", "Your parcel 12 is late", "What is 3 plus 5?"])
    dev, train = table(["Nobody has answered me."]), table(["What is 7 plus 8?"])
    copies = ["ab", "your parcel 7 is LATE!", "what is 3 plus 5 ?", "nobody has answered me"]
    others = ["a b!", "What is 3 plus 6?"]  # short; and as near to a row of train
    found = find_held_out_copies(table(copies + others), [test, dev], train)
    assert found.tolist() == [True] * 4 + [False] * 2


def test_what_is_almost_a_held_out_row_is_a_copy_but_not_what_is_as_near_to_train() -> None:
    invoice = "The invoice of {} was paid twice by the same person in the other office"
    test = table([invoice.format("March"), "Nobody at the counter has said a word about when it will come"])
    train = table([invoice.format("May")])
    near = "Nobody at the counter has said a word about when it would come"
    found = find_held_out_copies(table([near, invoice.format("June"), near[30:]]), [test], train)
    assert found.tolist() == [True, False, False]


def varied(seed: int) -> list[str]:
    """Sentences, some of them again with other case, spaces, marks, numbers or an end."""
    draw, texts = random.Random(seed), sentences(150, seed)
    changes = [str.upper, lambda t: t + " !", lambda t: f"{t} {draw.randrange(99)}", lambda t: t[:-2]]
    texts += [draw.choice(changes)(draw.choice(texts)) for _ in range(80)]
    draw.shuffle(texts)
    return texts


def test_no_row_of_a_cut_is_nearly_outside_of_it(seed: int) -> None:
    """As `brimful check` counts what two tables share."""
    whole = table(varied(seed))
    taken = cut_rows(group_alike_rows(whole), [None] * len(whole), whole.fingerprints, 0.2, "test")
    assert abs(taken.sum() - len(whole) / 5) <= 1
    rest, part = whole.take(np.flatnonzero(~taken)), whole.take(np.flatnonzero(taken))
    assert find_overlap(rest, part) == ({}, {})


def test_the_same_rows_are_cut_in_whatever_order_they_stand(seed: int) -> None:
    texts = varied(seed)
    labels = [str(len(text) % 3) for text in texts]
    order = random.Random(seed).sample(range(len(texts)), len(texts))

    def taken(rows: list[int]) -> set[str]:
        part = table([texts[row] for row in rows])
        cut = cut_rows(group_alike_rows(part), [labels[row] for row in rows], part.fingerprints, 0.2, "test")
        return {text for text, inside in zip(part.texts, cut, strict=True) if inside}

    assert taken(list(range(len(texts)))) == taken(order)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abbbccccccc")), min_size=1, max_size=400),
    st.sampled_from([0.1, 0.2, 0.5]),
    st.text(max_size=3),
)
def test_a_cut_takes_whole_groups_and_the_share_of_each_label(rows, share, name) -> None:
    numbers, strata = zip(*rows, strict=True)
    groups = np.unique(numbers, return_inverse=True)[1]
    contents = np.arange(len(rows), dtype=np.uint64)
    taken = cut_rows(groups, strata, contents, share, name)
    assert (taken == cut_rows(groups, strata, contents, share, name)).all()
    for group in range(groups.max() + 1):
        assert len(set(taken[groups == group].tolist())) == 1
    assert not taken.all(), "something stays outside"
    assert taken.sum() <= share * len(rows) + 2


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 99))
def test_single_rows_are_cut_in_proportion(sizes: list[int], start: int) -> None:
    strata = [number for number, size in enumerate(sizes) for _ in range(size)]
    rows = np.arange(len(strata))
    taken = cut_rows(rows, strata, (rows + start).astype(np.uint64), 0.2, "test")
    found = Counter(np.array(strata)[taken].tolist())
    for number, size in enumerate(sizes):
        assert abs(found[number] - size / 5) <= 1
        assert found[number] < size, "each label can be learned"
    if min(sizes) >= 5:
        assert abs(taken.sum() - len(strata) / 5) <= 1


def test_rows_of_one_source_are_alike_in_whatever_order_they_stand(seed: int) -> None:
    """Three titles of each article, one article a second text of another; and short texts are no source."""
    articles, titles = sentences(70, seed), sentences(210, seed + 1000)
    rows = [*zip(titles, articles * 3, strict=True), (articles[0], articles[1])]
    rows += [(text, "yes") for text in sentences(30, seed + 2000)]
    groups = group_alike_rows(table(*map(list, zip(*rows, strict=True))))
    by_article = groups[:210].reshape(3, 70)
    assert (by_article == by_article[0]).all()
    assert by_article[0, 0] == by_article[0, 1] == groups[210]
    assert len(set(groups[211:])) == 30
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    again = group_alike_rows(table(*map(list, zip(*(rows[row] for row in order), strict=True))))
    parts = {frozenset(np.flatnonzero(groups == group).tolist()) for group in groups}
    assert {frozenset(order[row] for row in np.flatnonzero(again == group)) for group in again} == parts
    test, train = table(titles[:1], articles[:1]), table(titles[1:2], articles[1:2])
    copies = find_held_out_copies(table(["another", "another"], articles[:2]), [test], train)
    assert copies.tolist() == [True, False]


def test_what_too_many_rows_share_is_no_source(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    texts = sentences(120, seed)
    prompt = "is the following review of a film a good one"
    assert group_alike_rows(table(texts, [prompt] * 120)).max() == 119
    assert "120 of 120 rows share 'is the following review" in capsys.readouterr().err
    chained = table(texts, texts[1:] + texts[:1])
    assert group_alike_rows(chained).max() == 119
    queries = [text for text in sentences(60, seed + 1) for _ in range(4)]
    documents = random.Random(seed).choices(sentences(80, seed + 2), k=240)
    groups = group_alike_rows(table(queries, documents))
    assert len(set(groups)) == len(set(zip(queries, groups.tolist(), strict=True))) >= 50


def test_whole_sources_are_cut_near_the_share_of_the_rows_and_of_each_stratum(seed: int) -> None:
    """Also where sources have most of their rows in one stratum, and where one is half of the table."""
    draw = random.Random(seed)
    some = [draw.randint(1, 40) for _ in range(60)]
    for sizes, most in ((some, 0.45), ([20] * 10, 0.8), ([*[10] * 40, 400], 0.45)):
        groups, strata = list[int](), list[str]()
        for group, size in enumerate(sizes):
            groups += [group] * size
            strata += draw.choices("abcd" + 6 * draw.choice("abcd"), k=size)
        numbers = np.array(groups)
        chosen = cut_rows(numbers, strata, numbers.astype(np.uint64), 0.2, "test", by_source=True)
        assert 0.1 * len(groups) < chosen.sum() <= 0.26 * len(groups)
        assert all(len(set(chosen[numbers == group])) == 1 for group in range(len(sizes)))
        assert all(chosen[np.array(strata) == stratum].mean() < most for stratum in "abcd")
