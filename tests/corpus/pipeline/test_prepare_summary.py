"""The Summary of `prepare`: problems of files, what was decided, and which option decides otherwise."""

from pathlib import Path

import pytest

from brimful import prepare
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.preparation_summary import list_issues, summarise_preparation
from brimful.corpus.pipeline.tokenizer_choice import describe_tokenizer
from brimful.corpus.text.tokenizer import save
from brimful.corpus.tokenize.vocabulary_training import train

SENTENCES = ["Das Café ist schön, die Straße ist lang. ", "Ten Apples a day. ", "我们喜欢这本书。"]
TEXTS = [sentence * 3 for sentence in SENTENCES] * 20


@pytest.mark.parametrize(
    ("tokenizer", "options", "facts"),
    [
        ("train:200", {"lowercase": False}, ("WordPiece", True, False, "characters")),
        ("train:200", {"lowercase": True}, ("WordPiece", True, True, "characters")),
        ("given", {}, ("BPE", False, True, None)),
    ],
)
def test_what_was_decided_is_what_the_tokenizer_does(
    tokenizer: str, options: dict[str, bool], facts: tuple[str, bool, bool, str | None], tmp_path: Path
) -> None:
    model = "bpe" if tokenizer == "given" else "wordpiece"
    made = train(iter(TEXTS), 400, model=model, lowercase=facts[2], han="characters", nfkc=False)
    save(made, tmp_path)
    found = describe_tokenizer(tmp_path, PrepareConfig(paths=(), out="", tokenizer=tokenizer, **options))
    assert tuple(found[name] for name in ("model", "trained", "lowercase", "han")) == facts
    assert found["vocabulary_size"] == made.get_vocab_size()


def test_none_is_held_out_of_a_small_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    options = {"paths": [str(tmp_path / "in.txt")], "tokenizer": "train:200", "workers": 1}
    found = prepare(**options, out=str(tmp_path / "out"), validation_share=1e-9)
    said = capsys.readouterr().err
    cure = "raise --validation-share, or make more documents of the text (--read.split line)"
    assert f"none of 1 document was held out, so pretrain has no validation loss: {cure}" in said
    (decided,) = (table for table in summarise_preparation(found).tables if table.title == "Decided")
    assert decided.rows == [
        ["vocabulary", f"{found['vocabulary_size']} pieces (WordPiece), trained on this text", "--tokenizer"],
        ["case", "kept", "--lowercase"],
        ["accents", "kept", "--lowercase"],
        ["held out", "none", "--validation-share"],
        ["Chinese", "tokens of one character", "--han"],
    ]
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
