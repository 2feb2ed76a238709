"""Marks that tell words apart survive cleaning and a trained tokenizer, in every script."""

from pathlib import Path

import pytest

from brimful.commands.prepare import prepare
from brimful.corpus.cleaning.clean import CleanConfig, Cleaner
from brimful.corpus.text.folding import DROPPED, Folding, normalizer
from brimful.corpus.text.tokenizer import save
from brimful.corpus.tokenize.vocabulary_training import train

# Two words each that differ in marks alone, or in joiners; the language writes these marks.
PAIRS = {
    "Hindi": "अपने अपन / में म / कु क / बाल बल / कल काल / पिता पीता",
    "Bengali": "কল কাল / দিন দীন / র‍্যাব র্যাব",
    "Tamil": "கல் கல / மனம் மணம் / பலம் பாலம்",
    "Telugu": "కల కాల / పలు పాలు",
    "Kannada": "ಕಲ ಕಾಲ / ಮನೆ ಮನ",
    "Malayalam": "കല കാല / മനം മാനം",
    "Gujarati": "કલ કાલ / દિન દીન",
    "Punjabi": "ਕਲ ਕਾਲ / ਦਸ ਦੱਸ",
    "Sinhala": "කල කාල / ගම ගාම / ක්‍රම ක්රම",
    "Thai": "เสือ เสื่อ เสื้อ / ขา ข่า ข้า / ปา ป่า ป้า",
    "Lao": "ມາ ມ້າ / ປາ ປ່າ",
    "Khmer": "កា ក / គាត់ គត់",
    "Burmese": "မာ မား / ကျောင်း ကျောင",
    "Tibetan": "ཀ ཀི ཀུ / པོ པ",
    "Arabic": "كَتَبَ كُتُبٌ / عَلِمَ عِلْم / مدرّس مدرس",
    "Persian": "نامه‌ای نامهای / می‌رود میرود",
    "Urdu": "اس اُس اِس",
    "Hebrew": "סֵפֶר סַפָּר / שִׁיר שׁוּר",
    "Syriac": "ܡܠܟܐ ܡܰܠܟܐ",
    "Mongolian": "ᠬᠠᠷ᠎ᠠ ᠬᠠᠷᠠ",
    "Japanese": "かき かぎ がき / ハハ パパ ババ / ｶｷ ｶﾞｷ",
    "Japanese, decomposed": "か\u3099き かき",
    "Korean": "눈 논 / 발 팔",
    "Vietnamese": "ma má mà mả mã mạ / ba bà bá",
    "Yoruba": "ọkọ̀ ọkọ / igbá igba",
    "German": "schon schön / Mutter Mütter / drucken drücken",
    "French": "ou où / a à / sur sûr / cote côte côté",
    "Spanish": "ano año / si sí / el él",
    "Italian": "e è / da dà / papa papà",
    "Portuguese": "avó avô / pais país",
    "Swedish": "har här / for för / rad råd",
    "Polish": "sad sąd / lat łat / kat kąt",
    "Czech": "rada řada / byt být",
    "Turkish": "sık sik / on ön / kar kâr",
    "Romanian": "fata fată / sa să",
    "Hungarian": "kor kór kör / bor bőr",
    "Pinyin": "mā má mǎ mà",
    "Greek": "η ή / νόμος νομός / πότε ποτέ",
    "Russian": "мой мои / все всё / небо нёбо",
    "Ukrainian": "іі їі / мій міи",
    "Hawaiian": "pau paʻu / kou koʻu",
}
CLEANER = Cleaner(CleanConfig())


def words_of(language: str) -> list[list[str]]:
    return [group.split() for group in PAIRS[language].split(" / ")]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("model", ["wordpiece", "bpe"])
def test_words_that_differ_in_marks_have_other_ids(model: str, lowercase: bool) -> None:
    for language in PAIRS:
        groups = words_of(language)
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
    from tokenizers import Regex, normalizers

    drop = normalizers.Replace(Regex(DROPPED), "")
    for code in range(0x110000):
        character = chr(code)
        if 0xD800 <= code < 0xE000 or character.isspace():
            continue
        if drop.normalize_str(f"a{character}b") == "ab":
            words = f"a{character}b {'and so on ' * 9}end"
            (clean,) = CLEANER(words, (0, 0))
            assert clean[:3] in ("ab ", "a b"), hex(code)


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
    assert "℞ 1" in warning
    assert "龘 1" in warning
    assert summary["scripts"]["Latin"]["unknown"] == 1
