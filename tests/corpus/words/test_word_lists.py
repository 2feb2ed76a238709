"""Lexicons as they are distributed: the words come out of every form of file; what hardly occurs is said."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful import prepare
from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.words.word_lists import read_word_list

WORDS = ["无创dna", "边缘盒子", "云计算平台", "Coca Cola", "腾讯控股(00700)", "C++", "iPhone 15 Pro", "北京"]
WORDS += ["Edu Trust认证"]
FORMS = {
    "plain": "{0}",
    "jieba": "{0} {1} nz",
    "jieba without tags": "{0} {1}",
    "thuocl": "{0}\t{1}",
}


@pytest.mark.parametrize("form", FORMS)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=2, unique=True),
    numbers=st.lists(st.integers(0, 10**6), min_size=len(WORDS), max_size=len(WORDS)),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]),
    end=st.sampled_from(["\n", "\r\n"]),
    comment=st.booleans(),
)
def test_words_of_every_form(
    form: str, words: list[str], numbers: list[int], encoding: str, end: str, comment: bool, tmp_path_factory
):
    lines = ["# made by hand", ""] if comment else []
    lines += [FORMS[form].format(word, number) for word, number in zip(words, numbers, strict=False)]
    path = tmp_path_factory.mktemp("lexicon") / "a.txt"
    path.write_bytes((end.join(lines) + end).encode(encoding))
    found, notes = read_word_list(path, "lexicon")
    assert found == words
    ascii_alone = all(line.isascii() for line in lines)
    assert len(notes) == (form != "plain") + (encoding == "gb18030" and not ascii_alone)
    assert form == "plain" or "are left out" in notes[-1]


def test_the_example_of_jieba(tmp_path: Path):
    content = "云计算 5\n李小福 2 nr\neasy_install 3 eng\n好用 300\n台中\n凱特琳 nz\nEdu Trust认证 2000\n"
    path = tmp_path / "userdict.txt"
    path.write_text(content, encoding="utf-8")
    expected = ["云计算", "李小福", "easy_install", "好用", "台中", "凱特琳", "Edu Trust认证"]
    assert read_word_list(path, "lexicon").words == expected


@pytest.mark.parametrize(
    "words",
    [
        ["iPhone 13", "iPhone 14", "iPhone 15"],  # frequencies stand behind different words
        ["New York", "San Francisco", "Windows 11"],
        ["#tag", "#1 song"],
        ["[1] note", "3.5 mm", "and/or", "a|b"],
        ["type 2 diabetes", "vitamin c deficiency"],
        ["3D 打印", "5G 网络"],
        ["维生素 B", "北京"],
    ],
)
def test_words_that_only_look_divided_stay_whole(words: list[str], tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n".join(words), encoding="utf-8")
    assert read_word_list(tmp_path / "a.txt", "lexicon") == (words, [])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[\n "the",\n "of"\n]\n', "JSON"),
        ("高/a 血压/n\n糖尿病/n\n北京/LOC\n好\n", "'高/a 血压/n'"),
        ("1. the\n2、糖尿病\n", r"'1\. the'"),
        ("糖尿病 n 10\n高血压 n 5\n", "'糖尿病 n 10'"),
        ("糖尿病,10\n高血压,-5.5,n\n", "'糖尿病,10'"),
        ("糖尿病\t10\tn\n高血压\t5\tn\n", r"'糖尿病\\t10\\tn'"),
    ],
)
def test_lists_of_other_tools_are_refused(content: str, said: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(BrimfulError, match=r"the lexicon .*a\.txt .*" + said):
        read_word_list(tmp_path / "a.txt", "lexicon")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a 3\nb\0c 4\n", "line 2 has a NUL"),
        ("北京\n无创dna\n".encode("utf-16-le"), "line 2 has a NUL"),
        (b"a b\n# c\n" + b"x" * 1001, "line 3 has a word of 1,001 characters"),
        (b"\xff\xff\xff", "neither UTF-8, UTF-16 nor GB18030"),
    ],
)
def test_a_line_that_is_no_word_is_refused_by_its_number(content: bytes, said: str, tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(BrimfulError, match=r"a\.txt.*" + said):
        read_word_list(tmp_path / "a.txt", "lexicon")


def test_a_lexicon_of_which_nothing_occurs_is_said(tmp_path: Path):
    lines = [f"第{i}条：患者做了无创dna检查，云计算平台上线了边缘盒子产品。" for i in range(8)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "other.txt").write_text("not here\nnor there\n")
    (tmp_path / "jieba.txt").write_text("无创dna 10 n\n边缘盒子 5 n\n云计算平台 3\n", encoding="utf-8")
    options = {"paths": [str(tmp_path / "text.txt")], "tokenizer": "train:200", "workers": 1}
    found, said = {}, {}
    for name in ("other", "jieba"):
        with record_warnings() as said[name]:
            found[name] = prepare(**options, out=tmp_path / name, lexicon=str(tmp_path / f"{name}.txt"))
    assert found["jieba"]["words"] < found["other"]["words"]
    assert found["jieba"]["tokens"] == found["other"]["tokens"]
    assert any("0 of its 2 words occur in" in line for line in said["other"])
    assert not any("occur in" in line for line in said["jieba"])
    assert any("3 of 3 lines are left out ('无创dna' is read of" in line for line in said["jieba"])
