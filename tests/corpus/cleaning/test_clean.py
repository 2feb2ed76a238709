"""Cleaning: what each rule does, counts and leaves alone; hostile documents."""

import importlib.util
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning import own_rules
from brimful.corpus.cleaning.clean import CleanConfig, Cleaner, Example


def clean(raw: str, *, is_html: bool = False, **config) -> tuple[list[str], Counter[str]]:
    cleaner = Cleaner(CleanConfig(**config))
    return cleaner(raw, (0, 0), is_html=is_html), cleaner.counts


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@pytest.mark.parametrize(
    ("raw", "text", "counts"),
    [
        ("foo\0bar\ue123baz\U000f1234\ud800!\ufdd0?", "foo bar baz ! ?", {"unwanted characters": 5}),
        ("one\U0001fffftwo\U0010fffdthree\ufffdfour", "one two three four", {"unwanted characters": 3}),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth", {"invisible characters": 2}),
        ("a  b\t c\u3000d \r\n\r\n \n e", "a b c d\ne", {"line breaks": 2, "blanks": 7}),
        ("第一行\u2028第二行\f第三行", "第一行\n第二行\n第三行", {"line breaks": 2}),
        ("中文d41d8cd98f00b204e9800998ecf8427e文字", "中文 文字", {"garbage tokens": 1}),
        ("id 550e8400-e29b-41d4-a716-446655440000.", "id .", {"garbage tokens": 1}),
        ("aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQgZW5jb2RlZCB0ZXh0 ok", "ok", {"garbage tokens": 1}),
        ("see 3frfd44ee233ddfs/ /3frfd44ee233ddfs x8k2jq91mzp04hd7ws.", "see .", {"garbage tokens": 3}),
        ("公告.nav li{color:#fff; float : left}正文", "公告 正文", {"style rules": 1}),
        ("@media print { .a, #b > p{display:none} } 正文", "正文", {"style rules": 2}),
    ],
)
def test_rules(raw: str, text: str, counts: dict[str, int]) -> None:
    cleaned, found = clean(raw)
    assert cleaned == [text]
    assert {name: found[name] for name in counts} == counts
    assert set(found) <= {*counts, "blanks"}


@pytest.mark.parametrize(
    "text",
    [
        "没有空格的中文可以很长" * 40,
        "1234567890123456789012 6222021234567890123 2019-2020-2021",
        "about 5.5511151231257827e-017 and 12345678901234567890e12",
        "AVeryLongCamelCaseIdentifierNameInCode2WithNumbers",
        "if a < b and c > d: print('x')",
        "👨‍👩‍👧 می‌خواهم",
        "{color: red} 与 {width: 3} 是字典 {name: 1, top: 2}; font: a",
        "The margin: it fell; the width: it grew. Content: see below.",
        "Contents\nIntroduction ......................... 1\nMethod ............................... 12",
        "C++\nx = f(a[0], *b) / (c - 1) # ok",
        "हिन्दी में लिखा हुआ एक वाक्य। ภาษาไทยที่ไม่มีช่องว่าง",
        "utf8mb4 utf8mb4_general_ci iPhone15 iPhone15ProMax256GB RTX4090 SM-G991B/DS WH1000XM5 x86_64",
        "C6H12O6 C55H72O5N4Mg CH3CH2CH2CH2OH c6h12o6c12h22o11 2-methyl-4-chlorophenoxyacetic H2N-CH2-CH2-NH2",
        "https://example.com/2024/05/3frfd44ee233ddfs/page https://a.b/v1/items2/list3?id=4455",
        "python3.11 sha256sum base64encode i18n10n h264 mp3player2go win32api64bit 1000000000000000000 2024",
        "中文3个字符与第4季度2024年报告 wordpress6themes2plugins3 log4j2slf4jimpl 3.14159265358979323846",
        "VIN 1HGCM82633A004352 and IBAN DE89370400440532013000, ISBN 9783161484100",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert clean(text) == ([text], {})


@pytest.mark.parametrize(
    ("rule", "raw"),
    [
        ({"characters": False}, "a\ue000b"),
        ({"invisible": False}, "a\u200bb"),
        ({"css": False}, "x p{color:red}"),
        ({"garbage": False}, "d41d8cd98f00b204e9800998ecf8427e"),
        ({"blanks": False}, "a   b\n\n\nc"),
        ({"max_symbols": 1}, "=====-----"),
        ({"max_undecodable": 1, "characters": False}, "\ufffd\ufffda"),
        ({"html": "never", "css": False}, "<p>a</p><p>b</p><p>c</p>"),
    ],
)
def test_each_rule_can_be_turned_off(rule: dict, raw: str) -> None:
    assert clean(raw)[0] != [raw]
    assert clean(raw, **rule) == ([raw], {})


def test_lone_surrogates_never_stay() -> None:
    assert clean("a\ud800b", characters=False) == (["a b"], {"lone surrogates": 1})


def test_html_is_found_out() -> None:
    page = "<html><body><h1>Title</h1><p>One <b>bold</b>\nword &amp; more<br>next</p></body></html>"
    texts, counts = clean(page, is_html=True)
    assert texts == ["Title\nOne bold word & more\nnext"]
    assert counts["html documents"] == 1
    assert clean(page)[0] == texts
    assert clean(page, html="never")[0] != texts
    assert clean("<p>x y", html="always")[0] == ["x y"]


def test_boilerplate_goes() -> None:
    page = "<nav>Home</nav><p>Text</p><p hidden>x</p><p style='DISPLAY : none'>y</p><footer>legal</footer>"
    assert clean(page, is_html=True)[0] == ["Text"]
    assert clean(page, is_html=True, boilerplate=False)[0] == ["Home\nText\nx\ny\nlegal"]


def test_dropped_documents() -> None:
    assert clean("good \ufffd\ufffd\ufffd bad") == ([], {"dropped: undecodable": 1})
    assert clean(" \n ")[1]["dropped: empty"] == 1
    assert clean("x") == ([], {"dropped: too short": 1})
    assert clean("四个汉字", min_characters=5) == ([], {"dropped: too short": 1})
    assert clean("=====-----\n+++ ### a")[1]["dropped: symbols"] == 1
    assert clean("=== d41d8cd98f00b204e9800998ecf8427e ===")[1]["dropped: symbols"] == 1


def test_stop_words_judge_only_english() -> None:
    listing = "Milk Butter Cheese Bread Water Coffee"
    assert clean(listing, min_stop_words=2) == ([], {"dropped: stop words": 1})
    for text in ("The price of milk and bread.", "没有英文停用词的中文文本,iPhone15手机" * 2, "Short one"):
        assert clean(text, min_stop_words=2) == ([text], {})


@needs("py3langid")
def test_languages() -> None:
    english = "This is a plain English sentence about the weather."
    chinese = "今天的天气非常好，我们一起去公园散步，看看湖边的花。"
    mixed = (
        "净利润同比增长百分之五，大家好，欢迎使用本软件，请先阅读说明。董事会批准了分红方案。"
        "cent approved in a net by five The per quarter, company profit the rose dividend."
    )
    french = "Le conseil a approuvé un dividende pour les actionnaires de la société cette année."
    for text, languages, stays in (
        (english, ("zh",), False),
        (chinese, ("zh",), True),
        ("Too short", ("zh",), True),
        (mixed, ("en", "zh"), True),
        (mixed, ("zh", "ja"), False),
        (french * 5 + chinese, ("en", "zh"), False),
    ):
        expected = ([text], {}) if stays else ([], {"dropped: language": 1})
        assert clean(text, languages=languages) == expected
    with pytest.raises(BrimfulError, match=r"clean\.languages: unknown 'english'"):
        Cleaner(CleanConfig(languages=("english",)))


@needs("opencc")
def test_traditional_characters_become_simplified() -> None:
    assert clean("漢語和English", simplified=True) == (["汉语和English"], {"simplified characters": 2})


@pytest.mark.parametrize(
    ("package", "config", "extra"),
    [("opencc", {"simplified": True}, "zh"), ("py3langid", {"languages": ("en",)}, "lang")],
)
def test_a_missing_package_is_named(package: str, config: dict, extra: str, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(BrimfulError, match=rf"pip install '\.\[{extra}\]' in the clone"):
        Cleaner(CleanConfig(**config))


def test_long_documents_are_cut_between_sentences() -> None:
    text = "一句话在这里。" * 30
    pieces, counts = clean(text, max_characters=50)
    assert "".join(pieces) == text
    assert all(len(piece) <= 50 and piece.endswith("。") for piece in pieces)
    assert counts == {"long documents cut": 1}
    assert list(map(len, clean("a" * 95, max_characters=50)[0])) == [50, 45]
    assert clean("a" * 95, max_characters=50, min_characters=46)[1]["short ends of cut documents"] == 1
    assert clean("a b", min_characters=1, max_characters=1)[0] == ["a", "b"]


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({"min_characters": 0}, "clean.min_characters"),
        ({"min_characters": 9, "max_characters": 8}, "clean.min_characters"),
        ({"max_undecodable": float("nan")}, "clean.max_undecodable"),
        ({"min_stop_words": -1}, "clean.min_stop_words"),
    ],
)
def test_numbers_out_of_range_are_refused(config: dict, option: str) -> None:
    with pytest.raises(BrimfulError, match=option):
        CleanConfig(**config)


def test_examples_show_the_place() -> None:
    cleaner = Cleaner(CleanConfig())
    for record in range(3):
        cleaner("word " * 100 + "a\0b" + " word" * 100, (7, record))
    first, second = cleaner.examples["unwanted characters"]
    assert (first.input, first.record, second.record) == (7, 0, 1)
    assert "a\0b" in first.before
    assert "a b" in first.after
    assert max(len(first.before), len(first.after)) <= 200
    cleaner("!!!", (8, 9))
    assert cleaner.examples["dropped: symbols"] == [Example(8, 9, "!!!", "")]


@given(st.text(max_size=200), st.integers(2, 20))
def test_any_text_becomes_clean(raw: str, limit: int) -> None:
    for text in clean(raw, max_characters=limit, html="never")[0]:
        assert 2 <= len(text) <= limit
        assert text == text.strip()
        text.encode()  # no lone surrogate is left
        assert "\0" not in text
        assert "  " not in text
        assert "\n\n" not in text


@given(st.text(st.characters() | st.sampled_from("éﬁ①ｶﾞ\u0301\u0316가\u200b\u00a8"), max_size=100))
def test_nfkc_holds_to_the_end(raw: str) -> None:
    assert clean("ﬁne ①", nfkc=True) == (["fine 1"], {"normalized to NFKC": 1})
    for text in clean(raw, nfkc=True, html="never", css=False)[0]:
        assert unicodedata.is_normalized("NFKC", text)


SIZE = 300_000
HOSTILE = {
    "one word": "a",
    "hexadecimal": "0a",
    "base64": "aB3",
    "almost tokens": "a1b2c3d4e5f6g7h ",
    "braces": "{",
    "unclosed style rules": "{color:red;",
    "style rules": ".a{color:red}",
    "properties": "color:",
    "long selectors": "a " * 150 + "{color:red}",
    "marks": "\u0301\u0316",
    "line breaks": " \n",
    "wrapped": "a line that is wrapped where a wider one would not do for it\n",
    "Chinese lines": "汉" * 40 + "\n",
    "escaped escapes": "&amp;amp;",
    "references": "&#1",
    "NUL": "\0",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name: str) -> None:
    texts, counts = clean(HOSTILE[name] * (SIZE // len(HOSTILE[name])), nfkc=True)
    assert texts or any(reason.startswith("dropped: ") for reason in counts)
    assert all(len(text) <= CleanConfig().max_characters for text in texts)


def test_main_content() -> None:
    words = " ".join(["Text of the article, which is what a reader comes for."] * 5)
    page = f"<body><div class=sidebar><p>Beside it</div><article><h1>Title</h1><p>{words}</article></body>"
    assert clean(page, is_html=True)[0] == [f"Beside it\nTitle\n{words}"]
    assert clean(page, is_html=True, main_content=True)[0] == [f"Title\n{words}"]


def test_drop_patterns() -> None:
    raw = "Page 1 of 9\nText here. [edit] More [edit] text.\nPage 2 of 9\nEnd"
    patterns = (r"^Page \d+ of \d+\n", r"\[edit\] ")
    expected = {f"drop_patterns: {patterns[0]}": 2, f"drop_patterns: {patterns[1]}": 2}
    assert clean(raw, drop_patterns=patterns) == (["Text here. More text.\nEnd"], expected)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("pattern", ["(", "x*", "(a+)+$", "[z-a]"])
def test_a_bad_pattern_is_refused(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_rules, "_PROBE_SECONDS", 0.1)
    with pytest.raises(BrimfulError) as error:
        CleanConfig(drop_patterns=("fine", pattern))
    assert f"clean.drop_patterns: {pattern!r}" in str(error.value)
    assert "\n" not in str(error.value)


def test_foreign_runs() -> None:
    chinese = "净利润同比增长百分之五，大家好，欢迎使用本软件。" * 2
    english = "The quarterly report of the company says that the net profit rose by five per cent. " * 3
    russian = "Это обычный русский текст о погоде. " * 3
    script = 'var hm = document.createElement("script"); hm.src = "//a.b/c";'
    for raw, limit, text in (
        (f"{chinese}{script}{chinese}", 40, f"{chinese} {chinese}"),
        (f"{english}净利润同比增长百分之五大家好", 10, english),
        (f"{russian}lorem ipsum dolor", 10, russian),
    ):
        cleaned, counts = clean(raw, max_foreign_run=limit)
        assert cleaned == [text.strip()]
        assert counts["foreign runs"] == 1
    for text in (
        f"{chinese}iPhone15 Pro Max{chinese}",
        f"English words, more than a few, and {chinese}",
        "Just English text",
    ):
        assert clean(text, max_foreign_run=20) == ([text], {})
