"""docs/your-data.md: its examples are files that are read, and its programs convert what they say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.cli.main import main
from brimful.corpus.words.word_lists import read_word_list
from brimful.tables.question_files import read_questions
from brimful.tables.table_files import read_table
from brimful.tables.tagged_files import read_tagged
from brimful.tasks.multi_label import MultiLabel
from builders.reading import read

ROOT = Path(__file__).parents[1]
FORMS, PROGRAMS = ROOT / "docs/examples", ROOT / "docs/convert"
PAGE = (ROOT / "docs/your-data.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[([\w.-]+)\]\((?:examples|convert)/\1\)")
EXAMPLE = re.compile(LINK.pattern + r"\n\n((?:    .*\n|\n(?=    ))+)")
SECOND = "Nordbank raised its rates."
SENTENCES = ["Anna Berg joined Nordbank in Oslo.", SECOND]


def test_the_page_names_each_example_and_shows_how_it_begins() -> None:
    files = [*FORMS.iterdir(), *PROGRAMS.glob("*.py")]
    assert sorted(LINK.findall(PAGE)) == sorted(path.name for path in files)
    shown = EXAMPLE.findall(PAGE)
    assert len(shown) == 6
    for name, block in shown:
        lines = block.rstrip("\n").split("\n")
        content = (FORMS / name).read_text(encoding="utf-8").splitlines()
        assert [line.removeprefix("    ") for line in lines] == content[: len(lines)]


def test_its_commands_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(FORMS)
    commands = re.findall(r"^ {4}brimful (.+)$", PAGE, re.MULTILINE)
    assert [main(command.split()) for command in commands] == [0, 0, 0]
    assert capsys.readouterr().out.count("nothing found") == 2


@pytest.mark.parametrize(
    ("name", "config", "documents"),
    [
        ("corpus.txt", {}, ["\n\n".join(SENTENCES)]),
        ("corpus.txt", {"split": "paragraph"}, SENTENCES),
        ("corpus.jsonl", {}, SENTENCES),
        ("corpus.json", {}, SENTENCES),
        ("corpus.csv", {}, ["Anna Berg joined Nordbank, in Oslo.", SECOND]),
        ("corpus-telegram.json", {}, ["", SECOND, "Read nordbank.example, please."]),
        ("corpus-numbered.txt", {"field": "2"}, ["Anna Berg joined Nordbank.", "She works in Oslo.", SECOND]),
    ],
)
def test_corpora(name: str, config: dict[str, str], documents: list[str]) -> None:
    texts, issues = read(FORMS / name, **config)
    assert ([text.strip() for text in texts], issues) == (documents, {})


def test_corpora_of_pages_and_sentences(tmp_path: Path) -> None:
    (page,), _ = read(FORMS / "corpus.html")
    assert f"<p>{SECOND}</p>" in page
    joined = ["Anna Berg joined Nordbank.\nShe works in Oslo.", SECOND]
    assert read(FORMS / "corpus-sentences.json")[0] == joined
    texts, issues = read(FORMS / "corpus-sentences.json", field="1")
    assert (texts, [*issues.values()]) == (["Anna Berg joined Nordbank.", SECOND], [1])
    lists, whole = '["One.", "Two."]\n["Three."]\n', '[["One.", "Two."], ["Three."]]\n'
    for name in ("a.jsonl", "a.json"):
        for lines in (lists, whole, '[["One.", "Two."]]\n[["Three."]]\n'):
            assert read(tmp_path / name, lines)[0] == ["One.\nTwo.", "Three."]


def test_pairs_and_values() -> None:
    table = read_table(FORMS / "pairs.csv", labelled=True)
    assert table.second is not None
    assert list(table.second) == ["Nobody was at the desk.", "The desk is open all night."]
    assert table.labels == ["entailment", "contradiction"]
    assert read_table(FORMS / "values.csv", labelled=True).numbers().tolist() == [3.5, 0]


@pytest.mark.parametrize("name", ["questions-squad.json", "questions-datasets.jsonl"])
def test_questions(name: str) -> None:
    table = read_questions(FORMS / name, labelled=True)
    assert (list(table.texts), list(table.ids)) == (["Who joined?", "Where?"], ["q1", "q2"])
    assert table.labels == [[(0, "Anna Berg")], [(29, "Oslo")]]


def test_lexicons() -> None:
    assert read_word_list(FORMS / "lexicon.txt", "lexicon").words == ["腾讯控股(00700)", "Coca Cola"]
    assert read_word_list(FORMS / "lexicon-jieba.txt", "lexicon").words == ["无创dna", "腾讯控股"]


SPACY = json.dumps([[SENTENCES[0], {"entities": [[0, 9, "PER"], [29, 33, "LOC"]]}]])
WINDOWS = "A\r\nBerg joined\r\nin Oslo."
PARTS = "T1\tPER 0 7\tA  Berg\nR1\tin Arg1:T1 Arg2:T3\nT2\tTIME 3 7;16 18\tBerg in\nT3\tLOC 19 23\tOslo\n"
ANNA = {"start": 1, "end": 9, "text": "Anna Berg"}
OSLO = {"start": 30, "end": 33, "text": "Oslo"}
ASTRAY = json.dumps({"text": SENTENCES[0], "spans": [ANNA | {"label": "PER"}, OSLO | {"label": "LOC"}]})
RESULTS = [{"value": OSLO | {"labels": ["LOC"]}}]
TASKS = json.dumps([{"data": {"text": SENTENCES[0]}, "annotations": [{"result": RESULTS}]}])
WEBANNO = """#FORMAT=WebAnno TSV 3.3
#T_SP=custom.Entity|identifier|value
#T_SP=custom.Pos|PosValue


#Text=Anna Berg joined
1-1\t0-4\tAnna\t*[1]\tPER[1]\tNP\t
1-1.1\t0-2\tAn\t_\t_\tX\t
1-2\t5-9\tBerg\t*[1]\tPER[1]\tNP\t
1-3\t10-16\tjoined\t_\t_\tV\t

#Text=Oslo
2-1\t17-21\tOslo\t*\tLOC\tNP\t
"""


def run_program(name: str, files: dict[str, str], out: Path) -> None:
    """What a program of the page prints about the first of the files."""
    for file, content in files.items():
        (out.parent / file).write_text(content, encoding="utf-8", newline="")
    command = [sys.executable, str(PROGRAMS / name), next(iter(files))]
    printed = subprocess.run(command, cwd=out.parent, check=True, capture_output=True, text=True).stdout
    out.write_text(printed, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", '\ufefftext,label\n"Warm, and quiet","room, noise"\nPaid twice,bill\n'),
        ("in.tsv", "text\tlabel\nWarm, and quiet\troom#noise\nPaid twice\tbill\n"),
        ("in.jsonl", '{"text": "Warm", "label": "room、noise"}\n{"text": "Paid twice", "label": ["bill"]}\n'),
    ],
)
def test_the_program_for_labels(name: str, content: str, tmp_path: Path) -> None:
    run_program("split_labels.py", {name: content}, tmp_path / "out.jsonl")
    table = MultiLabel.read(tmp_path / "out.jsonl", labelled=True)
    assert table.labels == [["room", "noise"], ["bill"]]


@pytest.mark.parametrize(
    ("name", "files", "out", "spans"),
    [
        ("spacy_spans.py", {"in.json": SPACY}, "out.jsonl", [["Anna Berg", "Oslo"]]),
        ("brat_spans.py", {"in.txt": WINDOWS, "in.ann": PARTS}, "out.jsonl", [["A\r\nBerg", "Oslo"]]),
        ("move_offsets.py", {"in.jsonl": ASTRAY}, "out.jsonl", [["Anna Berg", "Oslo"]]),
        ("move_offsets.py", {"in.json": TASKS}, "out.jsonl", [["Oslo"]]),
        ("webanno_tags.py", {"in.tsv": WEBANNO}, "out.conll", [["Anna Berg"], ["Oslo"]]),
    ],
)
def test_programs(name: str, files: dict[str, str], out: str, spans: list[list[str]], tmp_path: Path) -> None:
    run_program(name, files, tmp_path / out)
    table = read_tagged(tmp_path / out, labelled=True)
    assert table.labels is not None
    rows = zip(table.texts, table.labels, strict=True)
    assert [[text[span.start : span.end] for span in row] for text, row in rows] == spans
