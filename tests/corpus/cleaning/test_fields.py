"""HTML in fields: one rule says whether tags go; then nothing else does."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.cleaning import fields
from brimful.corpus.cleaning.characters import squeeze_blanks
from brimful.corpus.cleaning.clean import TAGS_GONE, TAGS_LEFT, CleanConfig, Cleaner
from brimful.corpus.cleaning.fields import read_field
from builders.records import read_records


def text_of(raw: str) -> str:
    return squeeze_blanks(read_field(raw).text)[0].strip()


@pytest.mark.parametrize(("raw", "text"), read_records(Path(__file__).parent / "field_records.txt"))
def test_records_written_by_hand(raw: str, text: str) -> None:
    assert text_of(raw) == text


WORD = st.text(st.sampled_from("abcdefgh甲乙丙丁"), min_size=1, max_size=6)
DECOY = st.sampled_from(
    ["a < b", "c > d", "e<f", "5>3", "List<Text>", "<url>", "<x@y.z>", "<3", "a <b and c> d"]
)
ELEMENTS = st.sampled_from(sorted(fields._HTML_NAMES - {"ruby", "rt", "rp", "map"}))


@st.composite
def marked_prose(draw) -> tuple[str, list[str]]:
    """Prose with tags of all kinds in it, nested as it happens; and what a reader should find, in order."""
    pieces, said = [], []
    for _ in range(draw(st.integers(1, 12))):
        piece = draw(WORD | DECOY)
        said.append(piece)
        pieces.append(f" {piece} ")
        name = draw(ELEMENTS)
        attribute = draw(st.sampled_from(["", " class=x", ' title="y > z"', " hidden-by='q'"]))
        pieces.append(draw(st.sampled_from(["", "\n", f"<{name}{attribute}>", f"</{name}>", f"<{name}/>"])))
    return "".join(pieces), said


@given(marked_prose())
def test_prose_is_never_cut_by_more_than_its_tags(case: tuple[str, list[str]]) -> None:
    """What stands in scripts, titles or navigation is prose, too, and so is what only resembles a tag."""
    raw, said = case
    text = re.sub(r"\s", "", text_of(raw))
    place = 0
    for piece in said:
        begin = text.find(piece.replace(" ", ""), place)
        assert begin >= 0, (piece, text)
        place = begin + 1


@pytest.mark.parametrize(
    "raw",
    [
        "the <b> tag makes text bold, and <br> breaks a line",
        "用 <br> 标签换行，不要用 <p> 元素。",
        "a < b and c > d; if a <b and c> d; 若 a<b 且 c>d",
        "List<String> x = new ArrayList<Object>();",
        "see <url>, write to <a@b.c>, Dear <name>",
        "a comment is <!-- so --> written, a sign &gt; and &amp;lt; so",
        "<script>if (a < 3) { go(); }</script> and <style>p { margin: 0 }</style>",
        "&lt;b&gt; is escaped",
        "a <s> that nothing ends, and </u></u> that end nothing",
        "RoBERTa ends a text with </s> and a second with </s></s>.",
    ],
)
def test_prose_without_attributes_and_ends_stays(raw: str) -> None:
    assert read_field(raw).text is raw
    assert Cleaner(CleanConfig(css=False))(raw, (0, 0)) == [raw]


@pytest.mark.parametrize("name", sorted(fields._BLOCK_NAMES - fields._CELL_NAMES - {"hr", "table"}))
def test_blocks_are_lines(name: str) -> None:
    assert text_of(f"a<{name}>b</{name}>c") == "a\nb\nc"


@pytest.mark.parametrize(
    "marks", [("<!--", "-->"), *((f"<{name}>", f"</{name}>") for name in sorted(fields._HIDING_NAMES))]
)
def test_chapters_between_two_marks_that_a_text_speaks_of_stay(marks: tuple[str, str]) -> None:
    """A manual of HTML lost a megabyte between a `<!--` in an example and the next `-->`."""
    begin, end = marks
    chapters = "A page says what it says, and so does the next one. " * 500
    text = f"<p>The parser reads {begin}[if and waits.</p>\n{chapters}\n<p>Later comes {end} as its end.</p>"
    assert chapters.strip() in read_field(text).text


@given(st.text(st.sampled_from("<>/!-='\"& \nabpx;甲乙") | st.characters(), max_size=80))
def test_any_text_is_a_field(raw: str) -> None:
    for pieces in (raw, f"<p>{raw}</p>", f"<b {raw}"):
        assert len(read_field(pieces).text) <= 2 * len(pieces) + 2


SIZE = 200_000
# What comes before, what is repeated, and what comes behind.
HOSTILE = {
    "start tags": ("", "<p>", "</p>"),
    "paragraphs of lines": ("", "<p>x\n", "</p>"),
    "open quotes": ("", '<a x="', ""),
    "both quotes": ("", "<a x=\"' y='\" z", ""),
    "attributes": ("<a ", "x=1 ", ">"),
    "broken attributes": ("", '<a x=y"z', ""),
    "comments": ("</p>", "<!--", ""),
    "scripts": ("", "<script>x", "</p>"),
    "signs": ("", "<", ""),
    "escaped tags": ("", "&amp;lt;p&amp;gt;", ""),
    "tail": ("<b>x</b><p ", "x", ""),
    "cells": ("", "<td>", "</td>"),
    "nested": ("<div>" * (SIZE // 11), "</div>", ""),
}


@pytest.mark.cases(8)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_fields_take_linear_time(name: str) -> None:
    before, repeated, behind = HOSTILE[name]
    assert len(read_field(before + repeated * (SIZE // len(repeated)) + behind).text) <= 2 * SIZE


def issues_of(raw: str, **config) -> tuple[list[str], Counter[str]]:
    cleaner = Cleaner(CleanConfig(**config))
    return cleaner(raw, (0, 0)), cleaner.issues


def test_what_went_and_what_stayed_is_said_with_an_example() -> None:
    html, prose, sign = "今日<b>股市</b>大涨", "a <b> tag &amp; a sign", "AT&amp;T"
    assert issues_of(html) == (["今日股市大涨"], {f"{TAGS_GONE} (such as {html})": 2})
    assert issues_of(prose) == ([prose], {f"{TAGS_LEFT} (such as {prose})": 2})
    assert issues_of(sign) == ([sign], {f"{TAGS_LEFT} (such as {sign})": 1})
    for raw in ("a < b", "<date>", "List<String>", "AT&T"):
        assert issues_of(raw)[1] == {}


def test_the_option_decides() -> None:
    assert issues_of("若 <b> 标签 &gt;\n二", html="always")[0] == ["若 标签 >\n二"]
    assert issues_of("<p>正文</p><script>var b</script>", html="always")[0] == ["正文"]
    assert issues_of("今日<b>股市</b>大涨 &gt;", html="never") == (["今日<b>股市</b>大涨 &gt;"], {})
