"""Cleaning rules and their counters; exact duplicates."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from brimful.corpus.clean import CleanConfig, clean
from brimful.corpus.dedup import document_key, keep_first


def run(raw: str, *, is_html: bool = False, **config) -> tuple[list[str], Counter[str]]:
    counts: Counter[str] = Counter()
    return clean(raw, CleanConfig(**config), counts, is_html=is_html), counts


@pytest.mark.parametrize(
    ("raw", "text", "counts"),
    [
        ("AT&amp;T &#20013;&unknown; a&b", "AT&T 中&unknown; a&b", {"entities": 3}),
        ("foo\0bar\ue123baz\U000f1234\ud800!", "foo bar baz !", {"unwanted characters": 4}),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth", {"invisible characters": 2}),
        ("a  b\t c\u3000d \r\n\r\n \n e", "a b c d\ne", {}),
        ("第一行\u2028第二行\f第三行", "第一行\n第二行\n第三行", {}),
        (
            "this is a long line of English prose that was wrapped\nhere, and goes on",
            "this is a long line of English prose that was wrapped here, and goes on",
            {"wrapped lines joined": 1},
        ),
        ("中文d41d8cd98f00b204e9800998ecf8427e文字", "中文 文字", {"garbage tokens": 1}),
        ("id 550e8400-e29b-41d4-a716-446655440000.", "id .", {"garbage tokens": 1}),
        ("aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQgZW5jb2RlZCB0ZXh0 ok", "ok", {"garbage tokens": 1}),
    ],
)
def test_rules(raw: str, text: str, counts: dict[str, int]) -> None:
    assert run(raw) == ([text], counts)


@pytest.mark.parametrize(
    "text",
    [
        "没有空格的中文可以很长" * 40,
        "1234567890123456789012 6222021234567890123 2019-2020-2021",
        "/usr/share/doc/python3/README_2020-Long/Path_With/ThingsInside2",
        "AVeryLongCamelCaseIdentifierNameInCode2WithNumbers",
        "internationalization-and-localization-of-software",
        "if a < b and c > d: print('x')",
        "👨‍👩‍👧 می‌خواهم",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert run(text) == ([text], {})


def test_html() -> None:
    page = (
        "<html><head><title>t</title><style>p {}</style></head><body><nav>Home</nav><h1>Title</h1>"
        "<p>One <b>bold</b>\nword &amp; more<br>next</p><script>var x;</script>"
        "<table><tr><td>a</td><td>b</td></tr></table><footer>legal</footer></body></html>"
    )
    texts, counts = run(page, is_html=True)
    assert texts == ["Title\nOne bold word & more\nnext\na\nb"]
    assert counts == {"html documents": 1}
    assert run(page)[0] == texts  # found out without being told
    assert run(page, html="never")[0] != texts
    assert run("Use the <b> tag, then close it with </b>.")[1] == {}
    assert run("<p>x y", html="always")[0] == ["x y"]


def test_broken_and_deep_html_is_text_all_the_same() -> None:
    assert run("<div><p>open <b>never closed <table><td>cell", is_html=True)[0] == ["open never closed\ncell"]
    assert run("<div>" * 3000 + "deep", is_html=True)[0] == ["deep"]


def test_dropped_documents() -> None:
    assert run("good \ufffd\ufffd\ufffd bad") == ([], {"dropped: undecodable": 1})
    assert run(" \n ") == ([], {"dropped: empty": 1})
    assert run("x") == ([], {"dropped: too short": 1})
    assert run("四个汉字", min_characters=5) == ([], {"dropped: too short": 1})


def test_long_documents_are_cut_between_sentences() -> None:
    text = "一句话在这里。" * 30
    pieces, counts = run(text, max_characters=50)
    assert "".join(pieces) == text
    assert all(len(piece) <= 50 and piece.endswith("。") for piece in pieces)
    assert counts == {"long documents cut": 1}
    assert [len(piece) for piece in run("a" * 95, max_characters=50, garbage=False)[0]] == [50, 45]


@given(st.text(max_size=200), st.integers(2, 20))
def test_any_text_becomes_clean(raw: str, limit: int) -> None:
    for text in run(raw, max_characters=limit, html="never")[0]:
        assert 2 <= len(text) <= limit
        assert text == text.strip()
        text.encode()  # no lone surrogate is left
        assert "\0" not in text
        assert "  " not in text


def test_keys_ignore_blanks() -> None:
    assert document_key("a b\nc") == document_key("abc")
    assert document_key("a b c") != document_key("a b d")


@given(
    st.lists(
        arrays(np.uint64, st.integers(0, 20), elements=st.integers(0, 2**64 - 1) | st.just(7)), max_size=5
    )
)
def test_the_first_of_equal_documents_stays(parts: list[np.ndarray]) -> None:
    seen: set[int] = set()
    expected = []
    for part in parts:
        expected.append([not (key in seen or seen.add(key)) for key in part.tolist()])  # type: ignore[func-returns-value]
    for keys_at_once in (1, 3, 1 << 23):
        keep = keep_first(parts, keys_at_once=keys_at_once)
        assert [flags.tolist() for flags in keep] == expected
