"""Duplicates: keys, exact and near duplicates, recurring lines; earlier documents alone decide."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base.randomness import mix
from brimful.corpus.dedup import duplicates
from brimful.corpus.dedup.duplicates import BAND_HASHES, BANDS, RECORD, by_key, find_duplicates, shingles
from brimful.corpus.dedup.keys import FNV_OFFSET, FNV_PRIME, compute_keys
from brimful.corpus.dedup.near_pairs import fold

texts_strategy = st.lists(st.text(st.sampled_from("ab中文é \n。"), max_size=30), max_size=8)


def reference_key(text: str) -> int:
    value = FNV_OFFSET
    for byte in text.encode():
        if byte > 32:
            value = (value ^ byte) * FNV_PRIME % 2**64
    return int(mix(np.array([value], np.uint64))[0])


@settings(max_examples=100, deadline=None)
@given(texts_strategy, st.integers(1, 8))
def test_keys_of_documents_and_lines(texts: list[str], shortest: int) -> None:
    keys = compute_keys(texts, shortest)
    assert keys.documents.tolist() == [reference_key(text) for text in texts]
    assert keys.line_counts.tolist() == [text.count("\n") + 1 for text in texts]
    lines = [line for text in texts for line in text.split("\n")]
    lengths = [len("".join(line.split()).encode()) for line in lines]
    wanted = [reference_key(line) * (size >= shortest) for line, size in zip(lines, lengths, strict=True)]
    assert keys.lines.tolist() == wanted


def test_the_guess_at_tokens() -> None:
    guesses = compute_keys(["", "word", "internationalization", "中文。", "a, b!", "3.14", "été"], 1).tokens
    assert guesses.tolist() == [0, 1, 4, 3, 4, 3, 1]


def parts_of(keys: list[list[int]]) -> list[np.ndarray]:
    parts, place = [], 0
    for part in keys:
        records = np.empty(len(part), RECORD)
        # The partition goes by the highest bits: spread small numbers over them.
        records["key"] = np.array(part, np.uint64) << np.uint64(61)
        records["place"] = place + np.arange(len(part))
        place += len(part)
        parts.append(records)
    return parts


keys_strategy = st.lists(st.lists(st.integers(0, 7), max_size=12), max_size=5)


@settings(max_examples=100, deadline=None)
@given(keys_strategy, st.sampled_from([1, 2, 5, 1000]))
def test_records_are_regrouped_by_key(tmp_path_factory, keys: list, at_once: int) -> None:
    parts = parts_of(keys)
    total = sum(map(len, parts))
    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "MAX_SORTED_RECORDS", at_once)
        groups = list(by_key(parts, total, scratch))
    assert list(scratch.iterdir()) == []
    every = [tuple(record) for group in groups for record in group.tolist()]
    assert sorted(every) == sorted(tuple(record) for part in parts for record in part.tolist())
    for group in groups:
        assert group.tolist() == sorted(group.tolist())
    seen = [set(group["key"].tolist()) for group in groups]
    assert sum(map(len, seen)) == len(set().union(*seen))


@settings(max_examples=100, deadline=None)
@given(keys_strategy)
def test_the_first_of_equal_keys_stays(tmp_path_factory, keys: list) -> None:
    flat = [key for part in keys for key in part]
    repeats = np.zeros(len(flat), bool)
    for places in find_duplicates(parts_of(keys), len(flat), tmp_path_factory.mktemp("scratch")):
        repeats[places] = True
    assert repeats.tolist() == [key in flat[:place] for place, key in enumerate(flat)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=8), st.integers(1, 3))
def test_the_first_documents_keep_a_line(tmp_path_factory, documents: list[list[int]], most: int) -> None:
    flat = [key for document in documents for key in document]
    begins = np.cumsum([0, *map(len, documents)])[:-1]
    recurring = np.zeros(len(flat), bool)
    scratch = tmp_path_factory.mktemp("scratch")
    for lines in duplicates.find_recurring(parts_of([flat]), len(flat), scratch, begins, most):
        recurring[lines] = True
    had: dict[int, int] = defaultdict(int)
    expected = []
    for document in documents:
        expected += [had[key] >= most for key in document]
        for key in set(document):
            had[key] += 1
    assert recurring.tolist() == expected


def test_bands_have_keys_of_their_own() -> None:
    hashes = np.zeros((2, BANDS, BAND_HASHES), np.uint32)
    hashes[1, 3, 5] = 1
    keys = fold(hashes)
    assert len(set(keys[0].tolist())) == BANDS
    assert np.flatnonzero(keys[0] != keys[1]).tolist() == [3]


def test_shingles() -> None:
    assert shingles("one two three four five six") == ["one two three four five", "two three four five six"]
    assert shingles("one two") == ["one two"]
    hotel = "这家酒店的服务态度很好"
    assert shingles(hotel) == [hotel[begin : begin + 8] for begin in range(4)]
    assert shingles("") == [""]
