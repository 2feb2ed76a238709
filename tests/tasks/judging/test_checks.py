"""What `brimful check` notices: each finding with its count and rows, and nothing in a clean table."""

from pathlib import Path

import numpy as np
import pytest

from brimful.tables.labelled_spans import LabelledSpan
from brimful.tables.table import Table
from brimful.tasks.encoded import encode
from brimful.tasks.judging.checks import (
    Finding,
    check_labels,
    check_lengths,
    check_rows,
    check_tables,
    check_unknown,
    compare_labels,
    label_counts,
    lengths_of_encoded,
    measure_lengths,
    normalised,
    overlap,
)
from builders.encoders import word_tokenizer


def table(rows: list[tuple], name: str = "train.tsv", second: list[str] | None = None) -> Table:
    texts, labels = zip(*rows, strict=True)
    return Table(Path(name), list(texts), second, list(labels))


def distinct(count: int, start: int = 0, labels: str = "ab") -> list[tuple[str, str]]:
    """Rows without anything in common, of labels in an order without a pattern."""
    rng = np.random.default_rng(start)
    return [
        ("".join(rng.choice(list("abcdefghijklmnop "), 40)), str(rng.choice(list(labels))))
        for _ in range(count)
    ]


def by_kind(found: list[Finding]) -> dict[str, Finding]:
    kinds = [finding.kind for finding in found]
    assert len(set(kinds)) == len(kinds)
    assert all("\n" not in finding.message for finding in found)
    return {finding.kind: finding for finding in found}


def test_nothing_is_found_in_clean_tables() -> None:
    train, test = table(distinct(200, 1)), table(distinct(100, 2), "test.tsv")
    found, shared = check_tables(train, [test], ["a", "b"])
    assert found == []
    assert (shared[0].same, shared[0].near) == ({}, {})


def test_rows_that_dev_and_test_share_are_found() -> None:
    rows = distinct(150, 3)
    train, dev, test = table(distinct(200, 1)), table(rows[:100], "dev.tsv"), table(rows[97:], "test.tsv")
    found = by_kind(check_tables(train, [dev, test], None)[0])
    assert found.keys() == {"shared rows"}
    assert (found["shared rows"].file, found["shared rows"].count) == ("test.tsv", 3)


def test_repeats_are_exact_or_differ_in_case_width_and_spaces() -> None:
    rows = [*distinct(30), ("Ｇood  stuff", "a"), ("good stuff", "a"), ("good stuff", "a"), (" ", "b")]
    found = by_kind(check_rows(table(rows)))
    assert found.keys() == {"duplicates", "empty"}
    assert (found["duplicates"].count, found["duplicates"].rows) == (2, [32, 33])
    assert "row 32 is row 31: 'good stuff'" in found["duplicates"].message
    assert (found["empty"].count, found["empty"].rows) == (1, [34])
    assert normalised("Ｇood \t stuff") == normalised("GOODSTUFF") != normalised("good stuff!")


def test_the_second_text_of_a_pair_counts() -> None:
    rows = [("same", "a"), ("same", "a"), ("same", "b")]
    assert check_rows(table(rows, second=["x", "y", "z"])) == []
    assert by_kind(check_rows(table(rows, second=["x", "y", "y"]))).keys() == {"duplicates", "conflicts"}


def test_conflicts_name_both_rows_and_labels() -> None:
    rows = [*distinct(20), ("fine", "a"), ("fine", "a"), ("Fine", "b"), ("other", "b")]
    (conflict,) = (f for f in check_rows(table(rows)) if f.kind == "conflicts")
    assert (conflict.count, conflict.rows) == (1, [21, 23])
    assert "row 21 has 'a', row 23 'b': 'Fine'" in conflict.message
    sets = [("t", ["x", "y"]), ("t", ["y", "x"])]
    assert "conflicts" not in by_kind(check_rows(table(sets)))


def test_leaks_are_exact_or_nearly_so() -> None:
    train = table([*distinct(100, 1), ("A text of some length that is in both tables", "a")])
    copies = [
        (train.texts[3].upper(), train.labels[3]),
        (train.texts[5], "c"),
        (train.texts[7][:-1] + "!", "a"),
    ]
    test = table([*distinct(50, 2), *copies], "test.tsv")
    shared = overlap(train, test)
    assert shared.same == {50: 3, 51: 5}
    assert shared.near.keys() == {52}
    assert shared.near[52][0] == 7
    found = by_kind(check_tables(train, [test], None)[0])
    assert found.keys() == {"leakage", "near leakage"}
    assert "2 of 53 rows are in train too, 1 with another label (row 51 is row 4 there" in (
        found["leakage"].message
    )
    assert (found["near leakage"].count, found["near leakage"].rows) == (1, [53])


def test_rows_of_a_part_are_those_of_the_whole_table() -> None:
    clean = distinct(40, 1)
    rows = [("filler", "z"), *clean, (" ", "b"), clean[5], (clean[6][0].upper(), "c"), ("odd " * 20, "a")]
    train = table(rows).take(np.arange(1, len(rows)))
    test = table([("x", "a"), clean[7], ("y", "e")], "test.tsv").take([1, 2])
    found = by_kind([f for f in check_tables(train, [test], list("ab"))[0] if f.kind != "rare"])
    assert (found["empty"].rows, found["duplicates"].rows) == ([42], [43, 44])
    assert "row 43 is row 7:" in found["duplicates"].message
    assert found["conflicts"].rows == [8, 44]
    assert "(row 8 has" in found["conflicts"].message
    assert "(row 2 is row 9 there" in found["leakage"].message
    assert "(row 3: 'e')" in found["unseen labels"].message
    lengths = measure_lengths(train, word_tokenizer())
    (long,) = check_lengths(train, lengths, 16, 128, None)
    (unknown,) = check_unknown(train, lengths)
    assert long.rows == [45]
    assert "(row 45 has" in long.message
    assert "(20 of 22 in row 45)" in unknown.message


def test_rare_and_dominating_labels() -> None:
    rows = distinct(300, 3, "a") + distinct(4, 4, "b")
    order = np.random.default_rng(0).permutation(len(rows))
    found = by_kind(check_labels(table([rows[i] for i in order]), "learn"))
    assert found.keys() == {"rare", "imbalance"}
    assert "1 of 2 labels is on fewer than 10 rows ('b' 4), too few to learn" in found["rare"].message
    assert "'a' is the label of 98.7 % of the rows" in found["imbalance"].message


def test_labels_that_train_lacks_are_found() -> None:
    train = table([*distinct(200, 1, "abc"), *distinct(20, 2, "d")])
    test = table([*distinct(150, 3, "a"), ("new", "e")], "test.tsv")
    found = by_kind(compare_labels(train, test))
    assert found.keys() == {"unseen labels"}
    assert "(row 151: 'e')" in found["unseen labels"].message
    assert label_counts(list("abcd"), test) == {"a": 150, "b": 0, "c": 0, "d": 0, "e": 1}


def test_labels_of_spans_and_lists_are_counted_by_row() -> None:
    spans = table(
        [
            ("Ann met Bob", [LabelledSpan(0, 3, "PER"), LabelledSpan(8, 11, "PER")]),
            ("in Rome", [LabelledSpan(3, 7, "LOC")]),
        ]
    )
    assert label_counts(["LOC", "PER"], spans) == {"LOC": 1, "PER": 1}
    assert [f.kind for f in check_labels(spans, "learn")] == ["rare"]
    numbers = table([("a", "1.5"), ("b", "2.5")])
    assert check_tables(numbers, [], None)[0] == []


def test_long_texts_and_unknown_tokens() -> None:
    texts = ["w1 w2", "w1 " * 20, "", "strange strange w3"]
    rows = table([(text, "a") for text in texts])
    lengths = measure_lengths(rows, word_tokenizer())
    assert lengths.tokens.tolist() == [4, 22, 2, 5]
    assert lengths.unknown.tolist() == [0, 0, 0, 2]
    assert lengths.facts == pytest.approx(
        {"median": 5, "p90": 22, "p99": 22, "longest": 22, "unknown": 2 / 33}
    )
    found = by_kind(check_lengths(rows, lengths, 16, 128, None) + check_unknown(rows, lengths))
    assert "1 of 4 texts (25.0 %) is over 16 tokens and cut (row 2 has 22" in found["long texts"].message
    assert "--max-length 22" in found["long texts"].message
    assert "6.1 % of the tokens are unknown, in 1 text (2 of 5 in row 4)" in (found["unknown tokens"].message)
    windows = by_kind(check_lengths(rows, lengths, 16, 16, 4))["long texts"].message
    assert "read in windows" in windows
    assert "--" not in windows
    assert check_lengths(rows, lengths, 64, 128, None) == []
    assert check_unknown(rows, measure_lengths(table([("w1", "a")]), word_tokenizer())) == []


@pytest.mark.parametrize("overlap", [None, 2])
def test_encoded_rows_are_counted_as_they_are_read(overlap: int | None) -> None:
    rows = table([(text, "a") for text in ["odd w1", "w1 " * 20 + "odd", "", "w2"]])
    lengths = lengths_of_encoded(encode(rows, word_tokenizer(), 12, overlap=overlap), word_tokenizer())
    assert lengths.unknown.tolist() == [1, 0 if overlap is None else 1, 0, 0]
    assert lengths.tokens.tolist()[::2] == [4, 2]
    assert (lengths.tokens[1] > 12) == (overlap is not None)


def test_lengths_of_pairs_count_both_texts() -> None:
    pairs = table([("w1 w2", "a")], second=["w3 odd"])
    lengths = measure_lengths(pairs, word_tokenizer())
    assert lengths.unknown.tolist() == [1]


def test_pairs_in_the_other_order_and_shared_texts_are_found_across_files() -> None:
    article = "the harbour was closed for two days after the storm"
    train = pair_table(
        "train.tsv", [("a first title that has many words of its own", article), ("one text", "another text")]
    )
    other = pair_table(
        "test.tsv",
        [
            ("another text", "One text"),
            (article, "nothing like the other heading, from another paper"),
            ("x", "y"),
        ],
    )
    found = by_kind(check_tables(train, [other], None)[0])
    assert (found["leakage"].count, found["leakage"].rows) == (1, [1])
    assert (found["shared texts"].count, found["shared texts"].rows) == (1, [2])
    assert "row 2 and row 1 there: 'the harbour" in found["shared texts"].message


def pair_table(name: str, rows: list[tuple[str, str]]) -> Table:
    return Table(Path(name), [first for first, _ in rows], [second for _, second in rows], None)


@pytest.mark.parametrize(
    ("labels", "kind", "part"),
    [
        (["1", "1.0", "2"], "labels alike", "'1' and '1.0'"),
        (["pos", "Pos", "neg"], "labels alike", "2 rows with labels that differ only in case"),
        (["１", "1", "x"], "labels alike", r"'1' and '\uff11'"),
        (["a", "a\u200b", "x"], "labels alike", r"'a' and 'a\u200b'"),
        (["a", "nan", "b"], "missing labels", "1 row with the label 'nan'"),
        (['["a", "b"]', "c", "d"], "lists", "--task multi-label reads lists"),
        (["a|b", "c", "d"], "lists", "1 row whose label looks like a list ('a|b')"),
        (["1", "2", "1.5"], None, ""),
    ],
)
def test_labels_that_are_not_what_they_seem(labels: list[str], kind: str | None, part: str) -> None:
    found = by_kind(check_labels(Table(Path("a.tsv"), ["x", "y", "z"], None, labels), "learn"))
    assert {"labels alike", "missing labels", "lists"} & found.keys() == ({kind} if kind else set())
    assert kind is None or part in found[kind].message


def test_an_unseen_label_names_the_one_that_is_almost_the_same() -> None:
    train = Table(Path("a.tsv"), ["x", "y"], None, ["pos", "neg"])
    (found,) = compare_labels(train, Table(Path("b.tsv"), ["z"], None, ["Pos"]))
    assert "'Pos', there 'pos'" in found.message
