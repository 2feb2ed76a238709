"""`inspect` shows documents word by word, and what was dropped or changed and why."""

from pathlib import Path

import pytest

from brimful.corpus.prepare import prepare
from brimful.errors import BrimfulError
from brimful.inspection import inspect, show_findings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("inspect")
    lexicon = place / "lexicon.txt"
    lexicon.write_text("无创dna\nCoca Cola\n", encoding="utf-8")
    footer = "Copyright of this whole site by its owner."
    texts = {
        "a": "顺利的无创dna检测，我喝Coca Cola。",
        "b": "checksum d41d8cd98f00b204e9800998ecf8427e of the file",
        "c": "checksum d41d8cd98f00b204e9800998ecf8427e of the  file",
        "d": "x",
        "e": f"One story of a page.\n{footer}",
        "f": f"Another story of a page.\n{footer}",
    }
    (place / "in").mkdir()
    for name, text in texts.items():
        (place / "in" / f"{name}.txt").write_text(text, encoding="utf-8")
    prepare(
        paths=[str(place / "in")],
        out=str(place / "out"),
        tokenizer="train:120",
        validation_share=0.0,
        dedup={"lines": 1},
        lexicon=str(lexicon),
    )
    return place / "out"


def test_documents_word_by_word(folder: Path) -> None:
    found = inspect(directory=str(folder), documents=10)
    by_file = {Path(document["source"].split(",")[0]).name: document for document in found["documents"]}
    assert set(by_file) == {"a.txt", "b.txt", "e.txt", "f.txt"}
    words = by_file["a.txt"]["words"]
    assert "无创dna" in ["".join(word.split()) for word in words]
    assert "coca cola" in words
    assert "".join("".join(words).split()) == "顺利的无创dna检测,我喝cocacola。".replace(",", "，")
    short = inspect(directory=str(folder), documents=1, tokens=3)["documents"]
    assert len(short) == 1
    assert short[0]["cut"]


def test_what_was_dropped_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(directory=str(folder))
    examples = found["examples"]
    garbage = examples["garbage tokens"][0]
    assert "d41d8cd98f00b204e9800998ecf8427e" in garbage["before"]
    assert "d41d8" not in garbage["after"]
    assert examples["dropped: too short"][0]["before"] == "x"
    assert examples["dropped: duplicate"][0]["source"].endswith("c.txt, record 0")
    assert examples["recurring lines dropped"][0]["before"].startswith("Copyright of this whole site")
    assert found["counts"]["dropped: duplicate"] == 1
    show_findings(found)
    assert "dropped: duplicate: 1" in capsys.readouterr().out


def test_where_there_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match="no finished corpus"):
        inspect(directory=str(tmp_path))
