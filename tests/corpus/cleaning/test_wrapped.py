"""Wrapped lines: joined where a paragraph was broken at a width, left alone elsewhere."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.cleaning.wrapped import join_wrapped_lines
from builders.broken_lines import KEPT
from builders.prose import CHINESE as CHINESE_PROSE
from builders.prose import JAPANESE, KOREAN, SPACED

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


@given(st.integers(50, 100))
def test_english(width: int) -> None:
    wrapped = textwrap.fill(ENGLISH, width)
    assert join_wrapped_lines(wrapped) == (ENGLISH, wrapped.count("\n"))


@given(st.integers(20, 24))
def test_chinese_is_joined_without_blanks(width: int) -> None:
    lines = [CHINESE[begin : begin + width] for begin in range(0, len(CHINESE), width)]
    assert join_wrapped_lines("\n".join(lines)) == (CHINESE, len(lines) - 1)


def test_paragraphs_stay_apart() -> None:
    wrapped = textwrap.fill(ENGLISH, 70)
    assert (
        join_wrapped_lines(f"{wrapped}\n\nShort one.\n\n{wrapped}")[0]
        == f"{ENGLISH}\n\nShort one.\n\n{ENGLISH}"
    )
    indented = textwrap.fill(ENGLISH, 70, initial_indent="   ")
    assert join_wrapped_lines(f"{indented}\n{indented}")[0] == f"   {ENGLISH}\n   {ENGLISH}"


def test_a_sentence_that_goes_on() -> None:
    line = "this is a long line of English prose that was wrapped"
    assert join_wrapped_lines(f"{line}\nhere, and goes on") == (f"{line} here, and goes on", 1)


def test_hyphens_need_evidence() -> None:
    line = "implementation and well-known; here a long enough line that ends in an"
    assert join_wrapped_lines(f"{line} implemen-\ntation of it")[0] == f"{line} implementation of it"
    assert join_wrapped_lines(f"{line} well-\nknown word")[0] == f"{line} well-known word"
    assert join_wrapped_lines(f"{line} unex-\nampled word")[1] == 0


@pytest.mark.parametrize(
    "lines",
    [
        [
            "Shall I compare thee to a summer's day?",
            "Thou art more lovely and more temperate:",
            "Rough winds do shake the darling buds of May,",
            "And summer's lease hath all too short a date;",
        ],
        ["春眠不觉晓，处处闻啼鸟。", "夜来风雨声，花落知多少。", "床前明月光，疑是地上霜。"],
        [f"- item {n} that is about as long as the other ones are, and so fills" for n in range(5)],
        [f"{n}. 这个项目有二十几个字那么长，看起来像是一行的末尾" for n in range(5)],
        [
            "    for item in sequence_of_items_to_go_through:",
            "        result.append(transform(item, strength=3))",
            "        print(result, file=somewhere_else, end='')",
        ],
        [f"introduction to the matter {'.' * 30} {n}" for n in range(5)],
        [
            "name                 price             number of",
            "bread                2.50              twelve   ",
            "butter               3.10              seven    ",
        ],
        [
            "这家酒店很好",
            "位置方便，服务也不错，下次还会再来住的，推荐给大家",
            "一般",
            "早餐太差了，房间也很旧，隔音不好，晚上睡不着觉，总之不会再来",
        ],
        ["from somewhere.deep.within import SomethingUseful", "from somewhere.deep.within import something"],
    ],
)
def test_what_is_left_alone(lines: list[str]) -> None:
    assert join_wrapped_lines("\n".join(lines)) == ("\n".join(lines), 0)


LINES = st.text(max_size=60) | st.sampled_from([ENGLISH[:70], CHINESE[:30], "go-"])


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_only_blanks_and_hyphens_change(text: str) -> None:
    joined, times = join_wrapped_lines(text)
    assert joined.count("\n") == text.count("\n") - times
    assert "".join(joined.split()).replace("-", "") == "".join(text.split()).replace("-", "")


@pytest.mark.parametrize("blank", [" ", "   ", "\u3000", " " * 60])
def test_a_line_of_blanks_ends_a_paragraph(blank: str) -> None:
    wrapped = textwrap.fill(ENGLISH, 60)
    text, times = join_wrapped_lines(f"{wrapped}\n{blank}\n{wrapped}\n{blank}")
    assert text == f"{ENGLISH}\n{blank}\n{ENGLISH}\n{blank}"
    assert times == 2 * wrapped.count("\n")


def fill_wide(text: str, width: int) -> list[str]:
    """Lines of `width` characters, as programs break Chinese: a mark that may not begin a line hangs."""
    lines = [""]
    for character in text:
        if len(lines[-1]) >= width and character not in "，。；：？！、”）」』":
            lines.append("")
        lines[-1] += character
    return lines


def prose() -> list[list[str]]:
    wrapped = [textwrap.wrap(text, width) for text in SPACED for width in (60, 66, 72, 78)]
    wrapped += [textwrap.wrap(text, width) for text in KOREAN for width in (30, 35, 40)]
    for text in [*CHINESE_PROSE, *JAPANESE]:
        wrapped += [fill_wide(text, width) for width in (22, 26, 30, 36, 40)]
        wrapped += [fill_wide(f"\u3000\u3000{text}", 35), textwrap.wrap(text, 30)]
    return wrapped


@pytest.mark.parametrize("name", KEPT)
def test_lines_of_authors_stay(name: str) -> None:
    """Headlines, verse, sentences, lists, dialogues, logs: alone, and among wrapped prose."""
    assert join_wrapped_lines(KEPT[name])[0] == KEPT[name]
    for around in ("\n".join(textwrap.wrap(SPACED[0], 72)), "\n".join(fill_wide(CHINESE_PROSE[0], 36))):
        joined, _ = join_wrapped_lines(f"{around}\n\n{KEPT[name]}\n\n{around}")
        assert f"\n\n{KEPT[name]}\n\n" in joined


def test_wrapped_prose_is_joined() -> None:
    breaks = joined = 0
    for lines in prose():
        breaks += len(lines) - 1
        joined += join_wrapped_lines("\n".join(lines))[1]
    assert joined >= 0.97 * breaks


def test_lines_are_as_wide_as_on_a_screen() -> None:
    """Cyrillic of 80 and more columns, and German, whose lines often begin with the capital of a noun."""
    for text in SPACED:
        wrapped = textwrap.fill(text, 96 if text > "\u0400" else 60)
        assert join_wrapped_lines(wrapped)[1] >= wrapped.count("\n") - 1


def test_the_paragraphs_of_a_novel_stay_apart() -> None:
    """They follow without an empty line, and each begins with an indent."""
    short = ["“有人吗？”他喊了一声。", "没有人回答。"]
    paragraphs = [f"\u3000\u3000{text}" for text in [short[0], CHINESE_PROSE[0], short[1], CHINESE_PROSE[1]]]
    wrapped = "\n".join("\n".join(fill_wide(text, 35)) for text in paragraphs)
    assert join_wrapped_lines(wrapped)[0] == "\n".join(paragraphs)
