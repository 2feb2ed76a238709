"""HTML -> text: what stays of pages, well-formed, broken and hostile; selectolax is the reference."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.cleaning.characters import squeeze_blanks
from brimful.corpus.cleaning.markup import read_page


def text_of(markup: str) -> str:
    """The text as cleaning leaves it: one space for each run of them, one line break between lines."""
    return squeeze_blanks(read_page(markup))[0].strip()


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<head><title>t</title><style>p {}</style></head><h1>T</h1><p>a <b>b</b>\nc", "T\na b c"),
        ("one<br>two<br/>three</br>four", "one\ntwo\nthree\nfour"),
        ("<table><tr><th>a<th>b<tr><td>1</td><td>2</td></table>", "a b\n1 2"),
        ("<ul><li>one<li>two<ul><li>three</ul></ul>", "one\ntwo\nthree"),
        ("<a href=/>Home</a><a href=/about>About</a>", "Home About"),
        ("see <a>[1]</a>, <a>[2]</a>.", "see [1], [2]."),
        ("see <a>[1]</a><a>[2]</a>.", "see [1][2]."),
        ("<td><a>首页</a><a>新闻</a><td>位置<br><a>体育</a><a>论坛</a>", "首页新闻位置\n体育论坛"),
        ("他是<a>中国</a><a>科学家</a>，生于<a>北京</a>。", "他是中国科学家，生于北京。"),
        ("the<a name=x></a><a>se</a>", "these"),
        ("a<figure><img src=x alt=y><figcaption>c</figcaption><table><td>t</table></figure>b", "a\nc\nt\nb"),
        ("a<video>v</video><audio>w</audio><object>o</object><svg><text>s</text></svg><img alt=i>b", "ab"),
        ("<p>a<button>Yes</button><label>b</label><input value=c>", "a"),
        ("<my-row><p>one</my-row><my-row><p>two</my-row>", "one\ntwo"),
        ("<ruby>漢<rt>kan</rt>字<rt>ji</rt></ruby>です", "漢字です"),
        ("<ruby>漢<rp>(<rt>kan<rp>)</ruby>です", "漢です"),
        ("<code><span>x</span><span>.y</span></code>(<i>z</i>)", "x.y(z)"),
        ("<p>run:<pre>def f():\n    return 1\n</pre>done", "run:\ndef f():\nreturn 1\ndone"),
        ("a<script>if (a < b) { '</p>' }</script>b<!-- c > d --><![CDATA[x]]>e<!>f<?php x ?>", "abef"),
        ("a<SCRIPT>x</scripts></ScRiPt >b<style><!-- p{} --></style>c", "abc"),
        ("<p title='<p>x</p>' class=\"a>b\">one</p>", "one"),
        ("a < b && c > d <3 </ e>", "a < b && c > d <3"),
        ("&lt;b&gt; &amp;amp; &copy; AT&T &nbsp;&#x4e2d;&amp;nbsp;x", "<b> &amp; © AT&T 中 x"),
        (
            "<h2>Title<a href=page>¶</a></h2><dt>a<a href='#n'>¶</a><dt>x<a class=permalink>¶</a>",
            "Title\na\nx",
        ),
        ("<p>C<a href=page#c>#</a> and F<a href=/f>#</a>", "C# and F#"),
        ("中文<b>粗体</b>文字", "中文粗体文字"),
        ("<p>无\n创检测 \r\n\t净利，\n润“\n增”\n长", "无创检测净利，润“增”长"),
        ("カ\nナ𠀀\n一<b>\n丁 </b>\n七<!-- \n -->。\n（八", "カナ𠀀一丁七。（八"),
        ("中\nword\n文 中　文\n7\n한국\n어 é\né “a”\n“b”", "中 word 文 中 文 7 한국 어 é é “a” “b”"),
        ("<pre>中\n文</pre><td>中\n<td>\n文<p>中<br>\n文", "中\n文\n中 文\n中\n文"),
        ("<p><a>首页</a>\n<a>新闻</a>", "首页 新闻"),
        # What goes.
        ("<nav><ul><li>Home</ul></nav>a", "a"),
        ("<div role=navigation><div>x</div></div>a", "a"),
        ("a<span style='color:red; display : NONE'>x<span>y</span></span>b", "ab"),
        ("<p hidden>x<b>y<p>a", "a"),
        ("<p hidden>x <button>y</button> z</p>a", "a"),
        ("<nav><ul hidden><li>x</ul></nav><main>a<nav><li>x</nav></main>", "a"),
        ("<i aria-hidden=true>icon</i>a<div aria-hidden=true>b</div>", "a\nb"),
        ("<div><p>a <i aria-hidden=true>icon</i></p><ul><li hidden><p>x</ul></div>", "a"),
        ("<select><option>x</select><svg><text>x</text></svg>a", "a"),
        ("<ul class='docnav top'><li><a>back</a><li><a>next</a></ul><p>a", "a"),
        ("<div class=footer>Some <a>page</a></div>a", "a"),
        # What never ends is kept, and raw text without an end costs little.
        ("<p>a<nav>b<p>c", "a\nb\nc"),
        ("<p>a</p><nav>menu</nav><nav><p>b", "a\nmenu\nb"),
        ("<head><title>x<body><p>a</p></body>", "x\na"),
        ("<p>a<iframe src=x><p>b", "a\nb"),
        ("<style>x{}<p>b</p>", "x{}\nb"),
        ("a<style>/* <p> */ x</style>b", "ab"),
        ("a<script>write('<p>x</p>", "a"),
        ("a<!-- x --><!-- x ><p>b <!-- x > c", "a\nb c"),
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


BLOCKS = ["div", "p", "section", "blockquote", "h2"]
INLINE = ["b", "i", "span", "code", "em"]
WORDS = st.sampled_from(["one", "&amp;", "中文", "x &lt; y", "é", " "])


def element(names: list[str]):
    return lambda inside: st.builds(
        lambda name, parts: f"<{name}>{''.join(parts)}</{name}>",
        st.sampled_from(names),
        st.lists(inside, max_size=4),
    )


def blocks(inside):
    """Elements that all have their own end: an item stands in a list, or its end would be an outer item's."""
    items = st.lists(inside, max_size=4).map(lambda parts: "".join(f"<li>{part}</li>" for part in parts))
    return element(["div", "section", "nav"])(inside) | items.map("<ul>{}</ul>".format)


INLINES = st.recursive(WORDS, element(INLINE), max_leaves=8)
PAGES = st.recursive(INLINES, blocks, max_leaves=20)


@given(st.lists(PAGES, max_size=5).map("".join))
def test_a_tree_builder_finds_the_same_text(markup: str) -> None:
    lexbor = pytest.importorskip("selectolax.lexbor", reason="selectolax is not installed")
    page = lexbor.LexborHTMLParser(f"<body>{markup}</body>")
    page.strip_tags(["nav"])
    assert "".join(text_of(markup).split()) == "".join(page.body.text().split())


@given(st.text(st.sampled_from("<>/!-='\" abpx&;\0\n") | st.characters(), max_size=100))
def test_anything_is_a_page(markup: str) -> None:
    assert len(read_page(markup)) <= len(markup) + 2


SIZE = 1_000_000
# What comes before, what is repeated, and what comes behind.
HOSTILE = {
    "nested": ("", "<div>", ""),
    "nested and unmatched": ("<section>" * 511, "</div>", ""),
    "items": ("<dl>" * 400 + "<div>" * 100, "<dt>", ""),
    "paragraphs": ("", "<p>x", ""),
    "fonts": ("", "<font size=1><p>x", ""),
    "links": ("", "<a>x", ""),
    "misnested": ("", "<b><i></b></i>", ""),
    "tables": ("", "<table><tr><td>", ""),
    "cells": ("<table>", "<td>", ""),
    "navigation": ("", "<nav>", ""),
    "menus": ("", "<ul class=menu>", ""),
    "hidden": ("", "<b hidden>", ""),
    "signs": ("", "<", ""),
    "comments": ("", "<!--", ""),
    "attributes": ("<a ", "x=1 ", ">"),
    "styles": ("<a style='", "display", "'>"),
    "quotes": ("", "<a x='", ""),
    "scripts": ("", "<script></scrip</", ""),
    "scripts without end": ("", "<script><p>", "</body>"),
    "styles without end": ("", "<style><p><script><p><title><p><iframe><p>", "</body>"),
    "comments without end": ("", "<!-- <p>", ""),
    "cut off": ("<div><nav>" * (SIZE // 20), "</div>", ""),
    "cut off in turn": ("", "<div><nav><nav></div>", ""),
    "readings": ("", "<ruby>x<rt>x", ""),
    "elements of its own": ("<", "x-", ">"),
}


@pytest.mark.cases(8)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_take_linear_time(name: str) -> None:
    before, repeated, behind = HOSTILE[name]
    text = read_page(before + repeated * ((SIZE - len(before)) // len(repeated)) + behind)
    assert len(text) <= SIZE
    assert text.replace("x", "").strip("<># \n") == ""
