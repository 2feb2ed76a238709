"""Marks that tell words apart survive cleaning and a trained tokenizer, in every script."""

from pathlib import Path

import pytest
from tokenizers import Regex, normalizers

from brimful import prepare
from brimful.corpus.cleaning.clean import CleanConfig, Cleaner
from brimful.corpus.text.folding import DROPPED, Folding, normalizer
from brimful.corpus.text.tokenizer import save
from brimful.corpus.tokenize.vocabulary_training import train
from builders.records import read_lines

PAIRS = read_lines(Path(__file__).parent / "mark_pairs.txt")
CLEANER = Cleaner(CleanConfig())


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("model", ["wordpiece", "bpe"])
def test_words_that_differ_in_marks_have_other_ids(model: str, lowercase: bool) -> None:
    for language, pairs in PAIRS.items():
        groups = [group.split() for group in pairs.split(" / ")]
        text = " ".join(" ".join(group) for group in groups)
        (clean,) = CLEANER(text, (0, 0)) or ("",)
        assert clean == text, language
        tokenizer = train([clean] * 5, 1000, model=model, lowercase=lowercase)
        for group in groups:
            encodings = [tokenizer.encode(word) for word in group]
            assert "[UNK]" not in {token for encoding in encodings for token in encoding.tokens}, language
            assert len({tuple(encoding.ids) for encoding in encodings}) == len(group), (language, group)


def test_case_and_foreign_accents_fold_in_one_language_and_not_in_another() -> None:
    english = ["The café on the corner was closed, " + "and so we went home again. " * 40]
    german = ["Der Müller ging schon früh nach Hause, und schön war es auch. " * 5]
    serbian = ["моја књига јесте на столу, а ми смо овде " * 5]
    folded = normalizer(Folding.of(english), han_apart=True).normalize_str
    assert folded("Café, CAFE\u0301, naïve, में, ガ, мой") == "cafe, cafe, naive, में, ガ, мой"
    folded = normalizer(Folding.of(german), han_apart=True).normalize_str
    assert folded("SCHÖN, schon, Straße") == "schön, schon, straße"
    assert Folding.of(serbian + german).accents == ("Cyrillic",)
    assert Folding.of([""]) == Folding(())


def test_turkish_and_greek_capitals() -> None:
    turkish = normalizer(Folding.of(["ılık ırmak, şeker, çok güzel " * 5]), han_apart=True).normalize_str
    assert turkish("ILIK İZMİR") == "ılık izmir"
    greek = normalizer(Folding.of(["ο νόμος, ο νομός " * 5]), han_apart=True).normalize_str
    assert greek("ΝΌΜΟΣ") == greek("νόμος") != greek("νομός")


def test_the_tokenizer_drops_what_cleaning_removes_and_nothing_else() -> None:
    characters = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x110000))]
    characters = [character for character in characters if not character.isspace()]
    drop = normalizers.Replace(Regex(DROPPED), "")
    lines = drop.normalize_str("\n".join(f"a{character}b" for character in characters)).split("\n")
    dropped = [character for character, line in zip(characters, lines, strict=True) if line == "ab"]
    assert len(dropped) > 100
    texts = CLEANER("\n".join(f"a{character}b and so on" for character in dropped), (0, 0))
    cleaned = "\n".join(texts).split("\n")
    assert len(cleaned) == len(dropped)
    assert {line[:3] for line in cleaned} <= {"ab ", "a b"}


def test_what_the_vocabulary_lacks_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = "the Intel core and the Arm core and the others of that kind were tested on a bench in May "
    text = tmp_path / "text.txt"
    lines = [f"{words * 3} {number} of them" for number in range(300)]
    save(train(lines, 200), tmp_path)
    lines[7] += " with Intel and a 龘 and others℞"
    text.write_text("\n".join(lines), encoding="utf-8")
    options = {"read": {"split": "line"}, "workers": 1, "validation_share": 0.0}
    summary = prepare(paths=[text], out=tmp_path / "data", tokenizer=str(tmp_path), **options)
    said = capfd.readouterr().err
    (warning,) = (line for line in said.splitlines() if "the vocabulary lacks" in line)
    assert "2 characters of the text (2 occurrences)" in warning
    assert all(character in warning for character in ("℞ 1", "龘 1"))
    assert summary["scripts"]["Latin"]["unknown"] == len("others℞")
