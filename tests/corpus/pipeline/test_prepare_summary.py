"""The Summary of `prepare`: problems of files, what was decided, and which option decides otherwise."""

from pathlib import Path
from typing import Any

import pytest

from brimful.base.summary import Summary
from brimful.commands.prepare import prepare
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.preparation_summary import list_issues, summarise_inputs, summarise_preparation
from brimful.corpus.pipeline.tokenizer_choice import describe_tokenizer
from brimful.corpus.text.tokenizer import save
from brimful.corpus.tokenize.vocabulary_training import train

SENTENCES = ["Das Café ist schön, die Straße ist lang. ", "Ten Apples a day. ", "我们喜欢这本书。"]
TEXTS = [sentence * 3 for sentence in SENTENCES] * 20


def summary(decided: dict[str, Any]) -> dict[str, Any]:
    counts = {"characters": 9, "tokens": 3, "unknown": 0}
    return {
        "documents": {"read": 5, "pieces": 0, "kept": 3, "validation": 1},
        "dropped": {"duplicate": 2},
        "cleaned": {},
        **dict.fromkeys(("characters", "tokens", "words", "sentences", "shards"), 1),
        "scripts": {"Latin": counts, "Han": counts},
        "decided": decided and decided | {"validation_share": 0.01},
        "seconds": {"clean": 1.0},
        "warnings": [],
    }


def rows(found: Summary, title: str) -> list[list[str]]:
    """The rows of the table with this title."""
    return next(table.rows for table in found.tables if table.title == title)


@pytest.mark.parametrize("lowercase", [False, True])
def test_what_was_decided_is_what_the_tokenizer_does(lowercase: bool, tmp_path: Path) -> None:
    tokenizer = train(iter(TEXTS), 200, model="wordpiece", lowercase=lowercase, han="characters", nfkc=False)
    save(tokenizer, tmp_path)
    config = PrepareConfig(paths=(), out="", tokenizer="train:200", lowercase=lowercase)
    found = describe_tokenizer(tmp_path, config)
    size = tokenizer.get_vocab_size()
    facts = {"model": "WordPiece", "vocabulary_size": size, "trained": True, "lowercase": lowercase}
    assert found.items() >= {**facts, "han": "characters"}.items()
    shown = summarise_preparation(summary(found))
    decided = {name: (value, option) for name, value, option in rows(shown, "Decided")}
    expected = {
        "vocabulary": (f"{size:,} pieces (WordPiece), trained on this text", "--tokenizer"),
        "case": ("ignored" if lowercase else "kept", "--lowercase"),
        "Chinese": ("tokens of one character", "--han"),
        "held out": ("1.0\u202f% of the documents", "--validation-share"),
    }
    assert decided.items() >= expected.items()
    assert rows(shown, "Dropped, by reason") == [["duplicate", "2"]]


def test_a_dry_run_lists_the_first_files_and_their_kinds() -> None:
    paths = [f"in/{i:03}.txt" for i in range(400)] + [f"in/{i}.JSONL.gz" for i in range(11)]
    shown = summarise_inputs(paths, 12_345_678)
    assert shown.verdict == "411 files, 12.3 MB, would be read."
    assert rows(shown, "Kinds") == [[".txt", "400"], [".jsonl.gz", "11"]]
    assert len(rows(shown, "Files")) == 20


def test_a_given_tokenizer_decides_for_itself(tmp_path: Path) -> None:
    save(train(iter(TEXTS), 400, model="bpe", lowercase=True, han="characters", nfkc=False), tmp_path)
    found = describe_tokenizer(tmp_path, PrepareConfig(paths=(), out="", tokenizer=str(tmp_path)))
    assert (found["trained"], found["lowercase"], found["han"]) == (False, True, None)
    decided = rows(summarise_preparation(summary(found)), "Decided")
    assert decided[0][1].endswith("pieces (BPE), given")
    assert "Chinese" not in {row[0] for row in decided}


def test_none_is_held_out_of_a_small_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    options = {"paths": [str(tmp_path / "in.txt")], "tokenizer": "train:200", "workers": 1}
    found = prepare(**options, out=str(tmp_path / "out"), validation_share=1e-9)
    said = capsys.readouterr().err
    cure = "raise --validation-share, or make more documents of the text (--read.split line)"
    assert f"none of 1 document was held out, so pretrain has no validation loss: {cure}" in said
    decided = rows(summarise_preparation(found), "Decided")
    assert ["held out", "none", "--validation-share"] in decided
    prepare(**options, out=str(tmp_path / "all"), validation_share=0.0)
    assert "held out" not in capsys.readouterr().err, "as asked for"


def test_problems_are_listed_by_file_or_for_many_files_at_once() -> None:
    parts = [{"a": {"tags (such as <p>)": 2}, "b": {"tags": 3, "broken lines": 1}}, {"a": {"tags": 1}}]
    assert list_issues([{"issues": part} for part in parts]) == [
        "a: tags (such as <p>): 3",
        "b: tags: 3",
        "b: broken lines: 1",
    ]
    many = {f"{number}.html": {"archive cut short": 1} for number in range(400)}
    many["0.html"]["tags"] = 2
    lines = ["400 files, such as 0.html: archive cut short: 400", "0.html: tags: 2"]
    assert list_issues([{"issues": many}]) == lines
