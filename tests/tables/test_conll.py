"""CoNLL columns of all kinds: the words of the file, and the spans of seqeval."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.conll import join_words
from brimful.tables.layouts import Columns, FileLayout
from brimful.tables.table import LabelledSpan
from brimful.tables.tagged_files import TaggedTable, read_tagged

SCHEMES = {  # the marks of a scheme, as BIOES calls them, and its own names for them
    "IO": ("I", {}),
    "IOB": ("BI", {}),
    "BIOES": ("BIES", {}),
    "BILOU": ("BIES", {"E": "L", "S": "U"}),
    "BMES": ("BIES", {"I": "M"}),
    "BMEWO": ("BIES", {"I": "M", "S": "W"}),
    "IOE": ("IE", {}),
    "lower case": ("BIES", {"B": "b", "I": "i", "E": "e", "S": "s"}),
}
FORMS = ["{mark}-{label}", "{label}-{mark}", "{mark}_{label}", "{label}_{mark}"]
LABELS = ["PER", "LOC", "S", "creative-work", "PER.NAM", "人名"]
WORDS = ["王", "小", "明", "。", "Anna", "2019", "#tag", "don't", "é", "😀", "(", "한국", "Ünï", '"', "O"]


def read(path: Path, content: str, labelled: bool = True, **columns: str) -> tuple[TaggedTable, list[str]]:
    path.write_text(content, encoding="utf-8", newline="")
    layout = FileLayout(columns=Columns(**columns))
    with record_warnings() as said:
        table = read_tagged(path, labelled=labelled, layout=layout)
    return table, said


def in_words(table: TaggedTable, row: int) -> list[tuple[str, int, int]]:
    """Spans as seqeval has them: label, first and last word."""
    assert table.labels is not None
    starts = {start: i for i, (start, _) in enumerate(table.words[row])}
    ends = {end: i for i, (_, end) in enumerate(table.words[row])}
    return [(span.label, starts[span.start], ends[span.end]) for span in table.labels[row]]


@settings(max_examples=60)
@given(data=st.data())
def test_words_and_spans_are_those_of_seqeval_in_all_schemes(data: st.DataObject, tmp_path_factory):
    entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    draw = data.draw
    marks, names = SCHEMES[draw(st.sampled_from(sorted(SCHEMES)))]
    form = draw(st.sampled_from(FORMS))
    tag = st.one_of(st.just(("O", "")), st.tuples(st.sampled_from(marks), st.sampled_from(LABELS)))
    words = st.lists(st.tuples(st.sampled_from(WORDS), tag), min_size=1, max_size=9)
    texts = draw(st.lists(words, min_size=1, max_size=4))
    # Every mark of the scheme is there, and O, so that the file tells its scheme.
    texts.append([("a", (mark, "PER")) for mark in marks] + [("b", ("O", ""))])
    index, extra = draw(st.booleans()), draw(st.integers(0, 2))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    between = draw(st.sampled_from(["\t", " ", "   ", " \t"]))
    blank = draw(st.sampled_from(["", " ", "\t", " \t "]))
    behind = draw(st.booleans())  # of the tag
    lines = []
    if draw(st.booleans()):
        lines += ["-DOCSTART- -X- O", blank]
    comments = draw(st.booleans())
    for number, text in enumerate(texts):
        if comments:
            lines.append(f"# text = {number} of {len(texts)}, from a page")
        for place, (word, (mark, label)) in enumerate(text, 1):
            name = "O" if mark == "O" else form.format(mark=names.get(mark, mark), label=label)
            others = ["NN", "x"][:extra]
            columns = [word, name, *others] if behind else [word, *others, name]
            lines.append(between.join([str(place), *columns] if index else columns))
        lines += [blank] * draw(st.integers(1, 2))
    name = draw(st.sampled_from(["a.conll", "a.bmes", "a.char.txt", "a.annotated"]))
    path = tmp_path_factory.mktemp("conll") / name
    content = end.join(lines)
    if draw(st.booleans()):
        content = content.rstrip() + draw(st.sampled_from(["", end]))
    word = 1 + index
    columns = {"text": str(word)} if index else {}
    columns |= {"label": str(word + 1)} if behind and extra else {}
    table, said = read(path, content, **columns)
    assert len(table) == len(texts)
    for row, text in enumerate(texts):
        assert [table.texts[row][start:end] for start, end in table.words[row]] == [word for word, _ in text]
        wanted = entities([mark if mark == "O" else f"{mark}-{label}" for _, (mark, label) in text])
        assert in_words(table, row) == [tuple(each) for each in wanted]
    assert any("without a word are left out" in line for line in said) == comments


def test_the_numbers_of_golden_horse_are_refused_with_what_removes_them(tmp_path: Path):
    # In Weibo's files, numbers count from 0 in each word: 科0 技1 全0; a few lines have none.
    content = "科0\tB-A\n技1\tI-A\n20\tO\n全0\tO\n😀0\tO\n\n第0\tO\n60\tB-A\n11\tI-A\n" * 2 + "了\tO\n"
    with pytest.raises(BrimfulError, match=r"numbers behind them \('科0'\); remove them with perl") as error:
        read(tmp_path / "a b.train", content)
    if shutil.which("perl") is None:
        pytest.skip("perl is not installed")
    command = str(error.value).partition("remove them with ")[2]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    table = read_tagged(tmp_path / "plain.conll", labelled=True)
    assert table.texts == ["科技2全😀", "第61科技2全😀", "第61了"]


def test_a_first_column_that_counts_is_refused_with_the_option_that_reads_the_next(tmp_path: Path):
    content = "1\tUniversität\tB-ORG\tO\n2\tUlm\tI-ORG\tB-LOC\n\n1\tUlm\tB-LOC\tO\n"
    for labelled in (True, False):
        with pytest.raises(BrimfulError, match=r"counts words or names their text: --columns\.text 2"):
            read(tmp_path / "a.tsv", content, labelled)
    table, said = read(tmp_path / "a.tsv", content, text="2", label="3")
    assert table.texts == ["Universität Ulm", "Ulm"]
    assert table.labels == [[LabelledSpan(0, 15, "ORG")], [LabelledSpan(0, 3, "LOC")]]
    assert said == []
    inner, _ = read(tmp_path / "a.tsv", content, text="2")
    assert inner.labels == [[LabelledSpan(12, 15, "LOC")], []]


@pytest.mark.parametrize(
    ("content", "labelled", "texts", "comment"),
    [
        ("3 x O\n5 x B-A\n\n7 x O\n", True, ["3 5", "7"], ""),  # numbers that do not count
        ("A4 O\nB2 O\n", True, ["A4 B2"], ""),  # digits behind letters
        ("#Ulm X B-A\nis X O\n# is X\n#1 X O\n", True, ["#Ulm is #1"], "(line 3: '# is X')"),
        ("# id\t1\nAnna B-PER\nran O\n", True, ["Anna ran"], "(line 1: '# id"),  # its tab divides nothing
        ("#Berlin\n# is\nnice\n", False, ["#Berlin nice"], "(line 2: '# is')"),
        ("王 1 x\n明 2 x\n\nan 1 x\nb 2 x", False, ["王明", "an b"], ""),
        ("王 S-A\n\n2 O\n0 O\n1 O\n", True, ["王", "201"], ""),
        ("bc/a 0 Ann B-PER\nbc/b 1 is O\n", True, ["bc/a bc/b"], ""),
    ],
)
def test_what_is_a_word(content: str, labelled: bool, texts: list[str], comment: str, tmp_path: Path):
    table, said = read(tmp_path / "a.conll", content, labelled)
    assert table.texts == texts
    assert [comment in line for line in said] == [True] * bool(comment)


def test_files_of_conll_u_are_read_with_the_column_of_words(tmp_path: Path):
    rest = "_\t_\t_\t0\t_\t_\t_"
    lines = [f"1-2\tIm\t_\t{rest}", f"1\tIn\tin\t{rest}", f"2\tdem\tder\t{rest}", f"3\tOrt\tOrt\t{rest}"]
    content = "# sent_id = 1\n# text = Im Ort\n" + "\n".join(lines)
    table, said = read(tmp_path / "a.conllu", content, labelled=False, text="2")
    assert table.texts == ["In dem Ort"]
    assert "3 lines without a word are left out" in said[0]


def test_words_with_spaces(tmp_path: Path):
    table, said = read(tmp_path / "a.conll", "New York\tB-LOC\nis\tO\nbig\tO\n")
    assert table.texts == ["New York is big"]
    assert table.labels == [[LabelledSpan(0, 8, "LOC")]]
    assert said == []
    for content in ("王\tB-A\n \tI-A\n明\tI-A\n \tO\n在\tO\n", "王 B-A\n  I-A\n明 I-A\n  O\n在 O\n"):
        table, said = read(tmp_path / "b.conll", content)
        assert (table.texts, said) == (["王 明 在"], [])
        assert table.labels == [[LabelledSpan(0, 3, "A")]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("我 爱 北 京 ， 真 的 。", "我爱北京，真的。"),
        ("I love New York .", "I love New York ."),
        ("我 爱 i P h o n e 1 5", "我爱iPhone15"),
        ("我们 爱 iPhone 15 手机", "我们爱 iPhone 15 手机"),
        ("東京 は ５ 月", "東京は５月"),
        ("한국 은 大 好", "한국 은 大好"),
        ("e\u0301 a", "e\u0301 a"),
    ],
)
def test_words_are_joined_as_their_scripts_are(words: str, text: str):
    found, places = join_words(words.split(" "))
    assert found == text
    assert [found[start:end] for start, end in places] == words.split(" ")


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("word tag\nAnna B-PER\nis O\n", {}, "text at line 1: 'tag' is not a tag"),
        ("B-PER\tAnna\nO\tlives\n", {}, "the tags Anna, lives .* --columns.label names another"),
        ("a B-X\nb\nc O\n", {}, "line 2 has 1 column, the lines before it 2"),
        ("a O\n", {"text": "3"}, "line 1 has 2 columns; expected 3: .* --columns names"),
        ("a O\n", {"text": "word"}, "columns of CoNLL files have numbers from 1, not the name 'word'"),
        ("a\tO\n\tO\n", {}, "line 2 has a tag and no word"),
        ('{"text": "a", "spans": []}\n', {}, "holds JSON, not columns of words and tags: name it .jsonl"),
        ("bc/a 0 Ann B-P\nbc/a 1 is O\n", {}, "--columns.text 2"),  # as in CoNLL-2012
        ("#FORMAT=WebAnno TSV 3.3\n\n#Text=Ann\n1-1\t0-3\tAnn\tPER\t\n", {}, "is WebAnno TSV"),
    ],
)
def test_lines_that_break_the_layout_are_refused(tmp_path: Path, content: str, columns, message: str):
    with pytest.raises(BrimfulError, match=message) as error:
        read(tmp_path / "a.conll", content, **columns)
    assert "\n" not in str(error.value)
