"""HTML -> text: what stays of pages, well-formed, broken and hostile."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.cleaning.characters import squeeze_blanks
from brimful.corpus.cleaning.markup import read_page
from builders.records import read_records


def text_of(markup: str) -> str:
    """The text as cleaning leaves it: one space for each run of them, one line break between lines."""
    return squeeze_blanks(read_page(markup))[0].strip()


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        *read_records(Path(__file__).parent / "page_records.txt"),
        ("<p>无\n创检测 \r\n\t净利，\n润“\n增”\n长", "无创检测净利，润“增”长"),
        ("カ\nナ𠀀\n一<b>\n丁 </b>\n七<!-- \n -->。\n（八", "カナ𠀀一丁七。（八"),
        ("中\nword\n文 中\u3000文\n7\n한국\n어 é\né “a”\n“b”", "中 word 文 中 文 7 한국 어 é é “a” “b”"),
    ],
)
def test_text(markup: str, text: str) -> None:
    assert text_of(markup) == text


@pytest.mark.parametrize(
    "markup",
    [
        "<header><h1><a>Title</a></h1>by <a>me</a></header>",
        "<aside><a>[1]</a> See <a>another page</a></aside>",
        "<ul class=menu><li>Soup with <a>bread</a> and much else<li>Fish of the <a>day</a> or none</ul>",
        "<ul><li><a>one</a><li><a>two</a><li><a>three</a></ul>",
        "<body class='has-sidebar' style='visibility:hidden'><a>one</a> <a>two</a></body>",
    ],
)
def test_content_with_links_stays(markup: str) -> None:
    assert text_of(markup).split() == re.sub("<[^>]*>", " ", markup).split()


@pytest.mark.parametrize("start", ["<nav>", "<div hidden>", "<footer>", "<svg><path>", "<span hidden>"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("<body>", "</body></html>"), ("<main>", "</main>"), ("<section>", "</section></body>"), ("", "")],
)
def test_what_only_its_parent_ends_is_kept(start: str, before: str, after: str) -> None:
    script = f"<script>{'//' * 400}</script>"  # a page with little text
    page = text_of(f"{script}{before}{start}<p>two</p>{after}<p>one</p>")
    assert sorted(page.split()) == ["one", "two"]


def test_deep_nesting_loses_no_text() -> None:
    page = "<ul>" * 20_000 + "<li>x</li>" * 20_000
    assert len(read_page(page)) < len(page)
    for name in ("div", "b", "blockquote", "ul", "table", "font"):
        assert text_of(f"<{name}>" * 20_000 + "deep" + f"</{name}>" * 20_000 + "<p>after") == "deep\nafter"


@given(st.text(st.sampled_from("<>/!-='\" abpx&;\0\n") | st.characters(), max_size=100))
def test_anything_is_a_page(markup: str) -> None:
    assert len(read_page(markup)) <= len(markup) + 2


SIZE = 1_000_000
# What comes before, what is repeated, and what comes behind.
HOSTILE = {
    "nested": ("", "<div>", ""),
    "nested and unmatched": ("<section>" * 511, "</div>", ""),
    "paragraphs": ("", "<p>x", ""),
    "links": ("", "<a>x", ""),
    "navigation": ("", "<nav>", ""),
    "menus": ("", "<ul class=menu>", ""),
    "hidden": ("", "<b hidden>", ""),
    "signs": ("", "<", ""),
    "comments": ("", "<!--", ""),
    "attributes": ("<a ", "x=1 ", ">"),
    "styles": ("<a style='", "display", "'>"),
    "scripts": ("", "<script></scrip</", ""),
    "scripts without end": ("", "<script><p>", "</body>"),
    "styles without end": ("", "<style><p><script><p><title><p><iframe><p>", "</body>"),
    "comments without end": ("", "<!-- <p>", ""),
    "cut off in turn": ("", "<div><nav><nav></div>", ""),
}


@pytest.mark.cases(8)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_take_linear_time(name: str) -> None:
    before, repeated, behind = HOSTILE[name]
    text = read_page(before + repeated * ((SIZE - len(before)) // len(repeated)) + behind)
    assert len(text) <= SIZE
    assert text.replace("x", "").strip("<># \n") == ""
