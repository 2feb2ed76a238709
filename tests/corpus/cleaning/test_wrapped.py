"""Wrapped lines: they stay, a warning names the option that joins them, and the option joins them."""

import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning.wrapped import count_full_lines, join_lines
from brimful.corpus.reading.read import WRAPPED, ReadConfig
from builders.reading import read

ENGLISH = (
    "A long paragraph was written by somebody who had a narrow screen, and so every line of it ends where "
    "the next word had no room left. Whoever reads it now wants the sentence back, because a model that "
    "learns from broken lines learns to break lines; besides, a sentence splitter may take each of them for "
    "a sentence."
)
CHINESE = (
    "这是一个很长的段落，写它的人用的屏幕很窄，所以每一行都在固定的宽度处断开，"
    "读者希望把句子重新连起来，这样分句和分词才不会出错，模型也不会学到奇怪的换行。"
)
HEADLINES = "央行宣布下调存款准备金率零点五个百分点\n国家统计局发布上半年数据\n多地出台政策支持青年人才返乡"


def broken(text: str, width: int) -> str:
    """The text in lines of so many characters."""
    return "\n".join(text[begin : begin + width] for begin in range(0, len(text), width))


@given(st.integers(30, 100))
def test_lines_with_spaces_are_joined_by_one(width: int) -> None:
    assert join_lines(textwrap.fill(ENGLISH, width)) == ENGLISH


@given(st.integers(5, 40))
def test_nothing_stands_between_chinese_lines(width: int) -> None:
    assert join_lines(broken(CHINESE, width)) == CHINESE


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("of trea-\nsurers and para-\ngraphs", "of treasurers and paragraphs"),
        ("pages 3 -\n4", "pages 3 - 4"),
        ("中文\nword\n中文", "中文 word 中文"),
        ("one\ntwo\n\nthree\nfour\n", "one two\n\nthree four\n"),
        ("    one\ntwo\n    three\nfour", "    one two\n    three four"),
        ("  all\n  lines\n  indented", "  all lines indented"),
        (
            "\u3000\u3000“谁？”\n\u3000\u3000他说：\n“是\n我。”",
            "\u3000\u3000“谁？”\n\u3000\u3000他说：“是我。”",
        ),
    ],
)
def test_paragraphs(raw: str, text: str) -> None:
    assert join_lines(raw) == text


@given(st.lists(st.text(max_size=30) | st.sampled_from(["go-", " a", ""]), max_size=8).map("\n".join))
def test_only_whitespace_and_hyphens_go(text: str) -> None:
    joined = join_lines(text)
    assert joined.count("\n") <= text.count("\n")
    letters = [re.sub(r"[\s\u2010-]", "", lines) for lines in (joined, text)]
    assert letters[0] == letters[1]


@pytest.mark.parametrize(
    "lines",
    [
        HEADLINES.split("\n") * 9,
        ["word", "other", "third"] * 20,
        [ENGLISH[:length] for length in range(20, 200, 3)],
        textwrap.wrap(ENGLISH, 72) * 3,
    ],
)
def test_lines_of_many_widths_or_few_lines_are_not(lines: list[str]) -> None:
    assert count_full_lines(lines) == 0


def test_a_file_keeps_its_lines_and_a_warning_names_the_option(tmp_path: Path) -> None:
    assert read(tmp_path / "headlines.txt", HEADLINES) == ([HEADLINES], {})
    wrapped = textwrap.fill(ENGLISH * 9, 72)
    path = tmp_path / "a.txt"
    texts, issues = read(path, wrapped)
    assert texts == [wrapped]
    assert issues[WRAPPED] > 20
    assert "--read.join-lines" in WRAPPED
    assert read(path, wrapped, join_lines=True) == ([ENGLISH * 9], {})
    assert read(path, wrapped, split="line")[1][WRAPPED] > 20
    paragraphs = f"{wrapped}\n\n{wrapped}"
    assert read(path, paragraphs, join_lines=True, split="paragraph") == ([ENGLISH * 9] * 2, {})


def test_pages_and_lines_that_are_documents_are_not_joined(tmp_path: Path) -> None:
    page = f"<html><body><pre>{HEADLINES}</pre></body></html>"
    assert read(tmp_path / "a.html", page, join_lines=True) == ([page], {})
    with pytest.raises(BrimfulError, match=r"read\.join_lines needs read\.split file or paragraph, not line"):
        ReadConfig(split="line", join_lines=True)
