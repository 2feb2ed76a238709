"""The last screen of `prepare`: what was decided for the user, and which option decides otherwise."""

from pathlib import Path
from typing import Any

import pytest

from brimful.commands.prepare import prepare
from brimful.corpus.pipeline.tokenizer_choice import TokenizerChoice, choices_of
from brimful.corpus.text.tokenizer import save
from brimful.corpus.tokenize.vocabulary_training import train
from brimful.reports.prepare_table import show_summary

TEXTS = [
    "Das Café ist schön, die Straße ist lang. " * 3,
    "Ten Apples a day. " * 3,
    "我们喜欢这本书。" * 3,
] * 20


def choice(tokenizer: str, *, lowercase: bool = False, han: Any = "characters") -> TokenizerChoice:
    return TokenizerChoice(
        tokenizer=tokenizer,
        model="wordpiece",
        lowercase=lowercase,
        han=han,
        nfkc=False,
        max_documents=None,
        extend=0,
    )


def summary(decided: dict[str, Any]) -> dict[str, Any]:
    counts = {"characters": 9, "tokens": 3, "unknown": 0}
    return {
        "documents": {"read": 5, "pieces": 0, "kept": 3, "validation": 1},
        "dropped": {"duplicate": 2},
        "cleaned": {},
        **dict.fromkeys(("characters", "tokens", "words", "sentences", "shards"), 1),
        "scripts": {"Latin": counts, "Han": counts},
        "decided": decided | {"validation_share": 0.01},
        "seconds": {"clean": 1.0},
        "memory_mb": {"main": 100},
    }


@pytest.mark.parametrize("lowercase", [False, True])
def test_what_was_decided_is_what_the_tokenizer_does(
    lowercase: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = train(iter(TEXTS), 200, model="wordpiece", lowercase=lowercase, han="characters", nfkc=False)
    save(tokenizer, tmp_path)
    found = choices_of(tmp_path, choice("train:200", lowercase=lowercase))
    assert found["model"] == "WordPiece"
    assert found["vocabulary_size"] == tokenizer.get_vocab_size()
    assert found["trained"]
    assert found["lowercase"] is lowercase
    assert found["han"] == "characters"
    show_summary(summary(found))
    screen = " ".join(capsys.readouterr().out.split())
    assert f"{tokenizer.get_vocab_size():,} pieces (WordPiece), trained on this text --tokenizer" in screen
    assert f"case {'ignored' if lowercase else 'kept'} --lowercase" in screen
    assert "Chinese tokens of one character --han" in screen
    assert "held out 1 % of the documents --validation-share" in screen
    assert "dropped: duplicate -2" in screen


def test_a_dry_run_is_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"in/{i:03}.txt" for i in range(400)] + [f"in/{i}.JSONL.gz" for i in range(11)] + ["in/read\nme"]
    show_summary({"dry_run": True, "files": 412, "bytes": 12_345_678, "inputs": paths})
    assert capsys.readouterr().out.splitlines() == [
        "dry run: 412 files, 12.3 MB, would be read",
        "  .txt 400, .jsonl.gz 11, no suffix 1",
        *(f"  in/{i:03}.txt" for i in range(10)),
        "  ... 402 more, which --json lists",
    ]
    show_summary({"dry_run": True, "files": 1, "bytes": 9, "inputs": paths[-1:]})
    assert capsys.readouterr().out.splitlines() == [
        "dry run: 1 file, 0.0 MB, would be read",
        "  no suffix 1",
        "  in/read\\nme",
    ]


@pytest.mark.parametrize("accented", [0, 30])
def test_accents_go_where_few_letters_have_one(accented: int, tmp_path: Path) -> None:
    texts = ["ten apples and pears a day keep the doctor away " * 20] * 20 + ["schön grün über"] * accented
    save(train(iter(texts), 150, model="wordpiece", lowercase=True, han="characters", nfkc=False), tmp_path)
    found = choices_of(tmp_path, choice("train:150", lowercase=True))
    assert found["accents"] == ([] if accented else ["Latin"])


def test_a_given_tokenizer_decides_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(train(iter(TEXTS), 400, model="bpe", lowercase=True, han="characters", nfkc=False), tmp_path)
    found = choices_of(tmp_path, choice(str(tmp_path)))
    assert (found["trained"], found["lowercase"], found["han"]) == (False, True, None)
    show_summary(summary(found))
    screen = capsys.readouterr().out
    assert "pieces (BPE), given" in screen
    assert "Chinese" not in screen


def test_none_is_held_out_of_a_small_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    paths, out = [str(tmp_path / "in.txt")], tmp_path / "out"
    found = prepare(paths=paths, out=str(out), tokenizer="train:200", workers=1, validation_share=1e-9)
    said = capsys.readouterr().err
    assert (
        "warning: none of 1 document was held out, so pretrain has no validation loss: a text file is" in said
    )
    assert "--read.split line" in said
    lines = {"read": {"split": "line"}, "out": str(tmp_path / "lines")}
    prepare(paths=paths, tokenizer="train:200", workers=1, validation_share=1e-9, **lines)
    assert "has no validation loss: raise --validation-share" in capsys.readouterr().err
    show_summary(found)
    assert "held out none --validation-share" in " ".join(capsys.readouterr().out.split())
    prepare(paths=paths, out=str(tmp_path / "all"), tokenizer="train:200", workers=1, validation_share=0.0)
    assert "held out" not in capsys.readouterr().err, "as asked for"
