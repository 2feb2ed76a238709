"""What `brimful check` notices: each finding with its count and rows, and nothing in a clean table."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brimful.commands.check import count_labels
from brimful.tables.table import LabelledSpan, Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.judging import checks
from brimful.tasks.judging.checks import Finding
from brimful.tasks.task_data import TaskData
from builders.encoders import small, word_tokenizer


def table(rows: list[tuple], name: str = "train.tsv", second: list[str] | None = None) -> Table:
    texts, labels = zip(*rows, strict=True)
    return Table(Path(name), list(texts), second, list(labels))


def distinct(count: int, start: int = 0) -> list[tuple[str, str]]:
    """Rows without anything in common, of labels in an order without a pattern."""
    rng, letters = np.random.default_rng(start), list("abcdefghijklmnop ")
    return [("".join(rng.choice(letters, 40)), str(rng.choice(["a", "b"]))) for _ in range(count)]


def by_kind(found: list[Finding]) -> dict[str, Finding]:
    kinds = [finding.kind for finding in found]
    assert len(set(kinds)) == len(kinds)
    assert all("\n" not in finding.message for finding in found)
    return {finding.kind: finding for finding in found}


def tokens_of(rows: Table, overlap: int | None = None, max_length: int = 99) -> tuple[np.ndarray, np.ndarray]:
    return checks.count_tokens(encode(rows, word_tokenizer(), max_length, overlap=overlap), word_tokenizer())


def labels_of(given: Table, train: Table) -> dict[str, Finding]:
    return by_kind(checks.check_labels(given, [[label] for label in given.labels], frozenset(train.labels)))


def test_only_train_is_asked_for_what_is_almost_the_same() -> None:
    """Near pairs of each two tables would take long."""
    rows = distinct(40, 3)
    almost = [(text[:-1] + "!", label) for text, label in rows]
    first, second = table(rows, "dev.tsv"), table(almost, "test.tsv")
    assert checks.check_tables([table(distinct(40, 1)), first, second], named=False) == []
    assert by_kind(checks.check_tables([first, second], named=False)).keys() == {"near leakage"}


def test_repeats_are_exact_or_differ_in_case_width_and_spaces() -> None:
    rows = [*distinct(30), ("Ｇood  stuff", "a"), ("good stuff", "a"), ("good stuff", "a")]
    found = by_kind(checks.check_rows(table(rows)))
    assert found.keys() == {"duplicates"}
    assert (found["duplicates"].count, found["duplicates"].rows) == (2, [32, 33])
    assert "row 32 ('a') and row 31 ('a'): 'good stuff'" in found["duplicates"].message


def test_the_second_text_of_a_pair_counts() -> None:
    rows = [("same", "a"), ("same", "a"), ("same", "b")]
    assert checks.check_rows(table(rows, second=["x", "y", "z"])) == []
    found = by_kind(checks.check_rows(table(rows, second=["x", "y", "y"])))
    assert found.keys() == {"duplicates", "conflicts"}


def test_labels_in_another_order_are_no_conflict() -> None:
    sets = [("t", ["x", "y"]), ("t", ["y", "x"]), ("T", ["x"])]
    found = by_kind(checks.check_rows(table(sets)))
    assert (found["duplicates"].rows, found["conflicts"].rows) == ([2, 3], [3])


def test_leaks_are_exact_or_nearly_so() -> None:
    train = table([*distinct(100, 1), ("A text of some length that is in both tables", "a")])
    copies = [(train.texts[3].upper(), train.labels[3]), (train.texts[5], "c")]
    copies.append((train.texts[7][:-1] + "!", "a"))
    test = table([*distinct(50, 2), *copies], "test.tsv")
    assert checks.find_overlap(train, test) == ({50: 3, 51: 5}, {52: 7})
    found = by_kind(checks.check_overlap(train, test))
    assert found.keys() == {"leakage", "near leakage"}
    assert "2 rows of 53 that are in train.tsv too (row 51 " in found["leakage"].message
    assert "1 with another label" in found["leakage"].message
    assert (found["near leakage"].count, found["near leakage"].rows) == (1, [53])


def test_rows_of_a_part_are_those_of_the_whole_table() -> None:
    clean = distinct(40, 1)
    rows = [("filler", "z"), *clean, ("w1", "b"), clean[5], (clean[6][0].upper(), "c"), ("odd " * 20, "a")]
    train = table(rows).take(np.arange(1, len(rows)))
    test = table([("x", "a"), clean[7], ("y", "e")], "test.tsv").take([1, 2])
    found = by_kind(checks.check_tables([train, test], named=True))
    assert found["duplicates"].rows == [43, 44]
    assert "and row 7 (" in found["duplicates"].message
    assert found["conflicts"].rows == [44]
    assert "(row 44 ('c') and row 8 (" in found["conflicts"].message
    assert found["leakage"].rows == [2]
    assert "and row 9 (" in found["leakage"].message
    assert (found["unseen labels"].rows, "('e')" in found["unseen labels"].message) == ([3], True)
    (unknown,) = checks.check_unknown(train, *tokens_of(train))
    assert "(20 of 22 in row 45)" in unknown.message


def test_labels_of_spans_are_counted_by_row() -> None:
    people = [LabelledSpan(0, 3, "PER"), LabelledSpan(8, 11, "PER")]
    spans = table([("Ann met Bob", people), ("in Rome", [LabelledSpan(3, 7, "LOC")])])
    assert count_labels(["LOC", "PER"], spans) == {"LOC": 1, "PER": 1}
    assert checks.check_tables([spans], named=True) == []


def test_lengths_and_unknown_tokens() -> None:
    texts = ["w1 w2", "w1 " * 20, "", "strange strange w3"]
    rows = table([(text, "a") for text in texts])
    tokens, unknown = tokens_of(rows)
    assert (tokens.tolist(), unknown.tolist()) == ([4, 22, 2, 5], [0, 0, 0, 2])
    facts = {"median": 5, "p90": 22, "p99": 22, "longest": 22, "unknown": 2 / 33}
    assert checks.summarise_tokens(tokens, unknown) == pytest.approx(facts)
    (found,) = checks.check_unknown(rows, tokens, unknown)
    assert "1 row with unknown tokens, 6.1 % of all (2 of 5 in row 4)" in found.message
    assert checks.check_unknown(rows, *tokens_of(table([("w1", "a")]))) == []
    # As rows are read: cut, or in windows; and both texts of a pair.
    long = table([("w1 " * 20 + "odd", "a")])
    assert [part.tolist() for part in tokens_of(long, None, 12)] == [[12], [0]]
    tokens, unknown = tokens_of(long, 2, 12)
    assert (tokens[0] > 12, unknown.tolist()) == (True, [1])
    assert tokens_of(table([("w1 w2", "a")], second=["w3 odd"]))[1].tolist() == [1]


def test_pairs_in_the_other_order_and_shared_texts_are_found_across_files() -> None:
    article = "the harbour was closed for two days after the storm"
    titles, texts = ["a first title that has many words of its own", "one text"], [article, "another text"]
    train = Table(Path("train.tsv"), titles, texts, None)
    firsts = ["another text", article, "x"]
    seconds = ["One text", "nothing like the other heading, from another paper", "y"]
    found = by_kind(checks.check_overlap(train, Table(Path("test.tsv"), firsts, seconds, None)))
    assert (found["leakage"].count, found["leakage"].rows) == (1, [1])
    assert (found["shared texts"].count, found["shared texts"].rows) == (1, [2])
    assert "row 2 and row 1 there: 'the harbour" in found["shared texts"].message


@pytest.mark.parametrize(
    ("labels", "kind", "part"),
    [
        (["1", "1.0", "2"], "labels alike", "'1', '1.0'"),
        (["pos", "Pos", "neg"], "labels alike", "2 rows"),
        (["１", "1", "x"], "labels alike", r"'1', '\uff11'"),
        (["a", "a\u200b", "x"], "labels alike", r"'a', 'a\u200b'"),
        (["a", "nan", "b"], "missing labels", "1 row"),
        (["1", "2", "1.5"], None, ""),
    ],
)
def test_labels_that_are_not_what_they_seem(labels: list[str], kind: str | None, part: str) -> None:
    given = Table(Path("a.tsv"), ["x", "y", "z"], None, labels)
    found = labels_of(given, given)
    assert found.keys() == ({kind} if kind else set())
    assert kind is None or part in found[kind].message


def test_labels_that_are_alike_in_train_are_not_repeated_of_each_table() -> None:
    train = Table(Path("a.tsv"), ["x", "y", "z"], None, ["pos", "Pos", "neg"])
    assert labels_of(train, train).keys() == {"labels alike"}
    assert labels_of(Table(Path("b.tsv"), ["u", "v"], None, ["pos", "neg"]), train) == {}
    assert labels_of(Table(Path("b.tsv"), ["u", "v"], None, ["pos", "Pos"]), train).keys() == {"labels alike"}


def test_what_a_run_is_told_before_its_training() -> None:
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer()

    def encoded(texts: list[str], labels: list[str], name: str) -> Encoded:
        return encode(Table(Path(name), texts, None, labels), word_tokenizer(), 16)

    train = encoded(["w1", "w2", "w2", "w3"], list("abab"), "train.tsv")
    test = encoded(["w1", "w5"], ["a", "b"], "test.tsv")
    data = TaskData(Classification(["a", "b"]), train, None, train, test, 0)
    findings, told = checks.check_before(data, encoder, own_dev=False)
    assert {finding.kind for finding in findings} == {"duplicates", "leakage", "conflicts"}
    assert {record["table"] for record in told["findings"]} == {"train", "test"}
    assert (told["train"]["n"], told["train"]["tokens"]["median"]) == (4, 3)
    data = replace(data, dev=encoded(["w6", "w5"], ["a", "b"], "dev.tsv"))
    findings, _ = checks.check_before(data, encoder, own_dev=True)
    (shared,) = (each for each in findings if "dev.tsv" in each.message)
    assert shared.file == "test.tsv"
    assert "what is chosen or trained on dev.tsv is measured too well" in shared.message
