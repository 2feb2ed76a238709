"""Charsets: the labels that browsers know, and what pages and bytes declare."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.charsets import Decoder, find_charset
from brimful.corpus.reading.detection import find_declared_charset, guess_charset
from builders.records import read_lines


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("gb2312", b"\x80\xe9\x46", "€镕"),  # the sign as Windows has it, and a letter of GBK
        ("iso-8859-1", b"\x80\x93", "€“"),
        ("shift_jis", b"\x87\x40", "①"),
    ],
)
def test_labels_mean_what_browsers_mean(label: str, data: bytes, text: str) -> None:
    assert Decoder(find_charset(label)).decode(data, final=True) == text


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ("gb2312 GBK x-gbk csgb2312 gb_2312-80 chinese cp936", "gbk"),
        ("big5 Big5-HKSCS cn-big5 x-x-big5", "big5"),
        ("shift_jis sjis windows-31j ms_kanji x-sjis", "shift_jis"),
        ("euc-kr ks_c_5601-1987 ksc5601 windows-949 euc_kr", "euc-kr"),
        ("iso-8859-1 latin1 ascii us-ascii l1 windows-1252 latin-1 iso8859_1", "windows-1252"),
        ("utf-8 utf8 UTF_8 unicode-1-1-utf-8 utf-8-sig", "utf-8"),
        ("utf-16 utf-16le ucs-2 unicode", "utf-16le"),
    ],
)
def test_labels(labels: str, name: str) -> None:
    assert {find_charset(label).name for label in labels.split()} == {name}
    assert find_charset(name) == find_charset(labels.split()[0])  # a message's name is an option, too
    assert find_charset("tis-620").codec == find_charset("iso-8859-11").codec == "cp874"
    for unknown in ("utf-88", "rot13", "hex", ""):
        with pytest.raises(BrimfulError, match="unknown encoding"):
            find_charset(unknown)


@pytest.mark.parametrize(
    "label", ["utf-8", "gbk", "big5", "shift_jis", "euc-kr", "euc-jp", "windows-1253", "koi8-u"]
)
@given(
    data=st.lists(
        st.sampled_from([b"\x81", b"\x8f", b"\xa1", b"\xe4\xb8", b"\xff", b"\x80", b"0", b"A", b"\n"])
    ),
    size=st.integers(1, 5),
)
def test_any_bytes_decode_the_same_in_chunks(label: str, data: list[bytes], size: int) -> None:
    """A broken character takes no line feed along. U+FFFD stands for each error."""
    joined = b"".join(data)
    whole, parts = Decoder(find_charset(label)), Decoder(find_charset(label))
    text = whole.decode(joined, final=True)
    chunks = [joined[at : at + size] for at in range(0, len(joined), size)]
    assert "".join(map(parts.decode, chunks)) + parts.decode(b"", final=True) == text
    assert parts.replaced == whole.replaced == text.count("\ufffd")
    assert text.count("\n") == joined.count(b"\n")


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (b"<meta charset=gb2312>", "gbk"),
        (b"<html><head><META  CHARSET = 'Big5' />", "big5"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">', "shift_jis"),
        (b"<meta content='text/html;charset = \"euc-kr\"' http-equiv=content-type>", "euc-kr"),
        (b"<!-- <meta charset=gbk> --><meta charset=utf-8>", "utf-8"),
        (b"<!-- <meta charset=gbk>", None),
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<?xml version='1.0' encoding='EUC-JP'?><html>", "euc-jp"),
        (b"<?xml version='1.0' encoding='EUC-JP'?><meta charset=gbk>", "gbk"),
        (b"<title>" + b"x" * 3000 + b"</title><meta charset=gbk>", "gbk"),  # found when it is parsed
        (b"x" * 3000 + b"<body><meta charset=gbk>", None),
        (b"<meta charset=nonsense>", None),
    ],
)
def test_what_a_page_declares(page: bytes, name: str | None) -> None:
    declared = find_declared_charset(page)
    assert (declared and declared.name) == name


TEXTS = read_lines(Path(__file__).parent / "charset_texts.txt")


@pytest.mark.parametrize("labels", TEXTS)
def test_the_bytes_tell_the_charset(labels: str) -> None:
    for label in labels.split():
        codec = find_charset(label).codec
        sample = TEXTS[labels].encode(codec)
        guess = guess_charset(sample, find_charset("utf-8"))
        assert guess is not None
        assert Decoder(guess).decode(sample, final=True) == TEXTS[labels]
        assert guess_charset(sample, find_charset(label)) is None
        assert guess_charset(TEXTS[labels].encode(), find_charset(label)) == find_charset("utf-8")


def test_plain_ascii_is_never_utf_16() -> None:
    for label in ("utf-16", "utf-16-be", "utf-32"):
        assert guess_charset(b"plain text\n", find_charset(label)) == find_charset("utf-8")
        assert guess_charset("plain text\n".encode(find_charset(label).codec), find_charset(label)) is None


def test_a_few_broken_bytes_tell_nothing() -> None:
    for sample in (b"good \xff\xfe bad more text", b"caf\xe9", "中文很好".encode() + b"\xff\xff", b"plain"):
        assert guess_charset(sample, find_charset("utf-8")) is None
    assert guess_charset("联通".encode("gbk"), find_charset("gbk")) is None  # these four bytes are UTF-8, too
