"""Word spans, word bits under three kinds of tokenizer, and sentences."""

from pathlib import Path

import numpy as np
import pytest
import rjieba
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from brimful.corpus.text.character_classes import HAN, character_classes
from brimful.corpus.text.characters import code_points
from brimful.corpus.tokenize.encode import TextTokenizer
from brimful.corpus.tokenize.vocabulary_training import train
from brimful.corpus.words.segmenter import HanSegmenter, Segmenter
from brimful.corpus.words.sentences import sentence_spans
from builders.records import read_records

FOLDER = Path(__file__).parent
TEXTS = [
    "顺利的无创dna检测crying了",
    "中华人民共和国的江南style，iPhone15手机。",
    "drink Coca Cola now, said the  AI in MAIN street!",
    "腾讯控股(00700)今天上涨 3.14% http://www.example.com/a_b",
    "naïve café 한국어 문장 らーめん คำภาษาไทย 😀👨‍👩‍👧",
]
LEXICON = ["无创dna", "Coca Cola", "腾讯控股(00700)", "AI"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


TOKENIZERS = {
    "wordpiece": train(TEXTS * 3, 400),
    "byte-level BPE": train(TEXTS * 3, 350, model="bpe"),
    "Unigram": unigram(),
}
SEGMENTER = HanSegmenter()


def words_of(text: str, lexicon: list[str] | None = None, language: str = "auto") -> list[str]:
    spans = Segmenter(language, lexicon).spans(text)  # type: ignore[arg-type]
    return [text[begin:end] for begin, end in spans]


@pytest.mark.parametrize(("text", "words"), read_records(FOLDER / "word_records.txt"))
def test_words(text: str, words: str) -> None:
    assert words_of(text, LEXICON) == words.split("\n")


def test_joined_characters_and_no_words() -> None:
    cafes = ["cafe\u0301s", "👨\u200d👩\u200d👧", "❤️"]
    assert words_of(" ".join(cafes)) == cafes
    for text in (" \n\t ", ""):
        assert words_of(text) == []
        assert len(sentence_spans(text)) == 0


def test_language_en_leaves_han_runs_whole() -> None:
    assert words_of("我们使用语言模型now", language="en") == ["我们使用语言模型", "now"]
    assert words_of("我们使用语言模型now", language="zh")[0] == "我们"


@pytest.mark.parametrize(
    ("text", "lexicon", "expected"),
    [
        # A longer or an earlier entry that would cut a word hides no other.
        ("iPhone 15 Provider", ["iPhone 15", "iPhone 15 Pro"], ["iPhone 15", "Provider"]),
        ("MAI chip maker", ["AI chip", "chip maker"], ["MAI", "chip maker"]),
        ("Yahoo! Inc", ["yahoo! inc", "Ｙahoo! Inc"], ["Yahoo", "!", "Inc"]),  # case and width matter
        ("国\u0301家", ["国"], ["国\u0301", "家"]),
        ("😀𠀀药品4号😀", ["药品4号"], ["😀", "𠀀", "药品4号", "😀"]),
    ],
)
def test_lexicon_words_are_the_longest_that_cut_no_word(
    text: str, lexicon: list[str], expected: list[str]
) -> None:
    assert words_of(text, lexicon) == expected


NEAR_LEXICON = "ab .中国\u0301😀\0"


def lay_plainly(text: str, lexicon: list[str]) -> list[list[int]]:
    """The spans that a lexicon gives, by trying every entry at every place."""
    spans = Segmenter().spans(text).tolist()
    uncut = {place for begin, end in spans for place in range(begin + 1, end) if text[place] not in "中国"}
    starts = {begin for begin, _ in spans}
    inside = {place for begin, end in spans for place in range(begin, end)}
    begin = 0
    while begin < len(text):
        ends = [begin + len(entry) for entry in lexicon if entry and text.startswith(entry, begin)]
        end = max((end for end in ends if not {begin, end} & uncut), default=begin)
        if end > begin:
            starts = (starts - set(range(begin, end))) | {begin}
            inside |= set(range(begin, end))
            starts |= {end} & inside
        begin = max(end, begin + 1)
    laid = []
    for begin in sorted(starts):
        end = begin + 1
        while end in inside - starts:
            end += 1
        laid.append([begin, end])
    return laid


@settings(max_examples=150)
@given(
    st.lists(st.text(NEAR_LEXICON, max_size=16), max_size=12),
    st.lists(st.text(NEAR_LEXICON, max_size=24), max_size=4),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=6),
)
def test_lexicon_words_are_those_of_a_plain_search(
    lexicon: list[str], parts: list[str], places: list[tuple[int, int]]
) -> None:
    text = "".join([*parts, *lexicon, *parts])
    lexicon += [text[begin : begin + length] for begin, length in places]
    assert Segmenter("auto", lexicon).spans(text).tolist() == lay_plainly(text, lexicon)


@pytest.mark.parametrize("seed", range(3))
def test_a_lexicon_with_collisions(seed: int) -> None:
    """Thousands of entries over few letters, so that slots, filter bits and prefixes are shared."""
    generator = np.random.default_rng(seed)

    def some(count: int, longest: int) -> list[str]:
        lengths = generator.integers(1, longest, count)
        return ["".join(generator.choice(list("ab 中国"), length)) for length in lengths]

    lexicon, text = some(3000, 30), "".join(some(20, 200))
    assert Segmenter("auto", lexicon).spans(text).tolist() == lay_plainly(text, lexicon)


AROUND_HAN = "中国人民我爱北京天安门的服务态度々〇腾讯无创豈𠀀一a1Z+#&._%- \n\r。,é\u0301\u200dア😀"


@settings(max_examples=300)
@given(st.lists(st.text(alphabet=AROUND_HAN, max_size=50), min_size=1, max_size=5))
def test_remembered_runs_are_cut_as_rjieba_cuts_the_whole_text(texts: list[str]) -> None:
    is_han = character_classes() == HAN
    for text in [*texts, *texts, "".join(texts) * 8]:
        cuts = np.cumsum([0, *map(len, rjieba.cut(text))])[:-1].tolist()
        begins = SEGMENTER.word_begins(code_points(text)).tolist()
        assert [b for b in begins if is_han[ord(text[b])]] == [c for c in cuts if is_han[ord(text[c])]]


@given(st.text(alphabet="ab1 \n中国人民。,é\u0301😀\u200dあーア()Co", max_size=60))
def test_spans_cover_everything_but_blanks_once(text: str) -> None:
    spans = Segmenter("auto", ["中国 人", "Co b"]).spans(text)
    assert (spans[:, 0] < spans[:, 1]).all()
    assert (spans[1:, 0] >= spans[:-1, 1]).all()
    covered = np.zeros(len(text), bool)
    for begin, end in spans:
        covered[begin:end] = True
    assert all(covered[place] or character.isspace() for place, character in enumerate(text))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab1 .\n中国人民。é😀あ(", max_size=30), min_size=1, max_size=4))
@example(TEXTS)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_bits_follow_the_rule(kind: str, texts: list[str]) -> None:
    """A token belongs to the word that holds its first character; blanks to the word after them."""
    segmenter = Segmenter("auto", LEXICON)
    batch = TextTokenizer(TOKENIZERS[kind], segmenter)(texts).batch
    expected: list[bool] = []
    for text in texts:
        owner_before = None
        for begin, _ in TOKENIZERS[kind].encode(text, add_special_tokens=False).offsets:
            owner = sum(1 for _, end in segmenter.spans(text) if end <= begin)
            expected.append(owner != owner_before)
            owner_before = owner
    assert batch.word_starts.tolist() == expected
    assert not (batch.sentence_starts & ~batch.word_starts).any()
    starts = np.cumsum(batch.lengths) - batch.lengths
    assert batch.sentence_starts[starts[batch.lengths > 0]].all()


@pytest.mark.parametrize(("text", "sentences"), read_records(FOLDER / "sentence_records.txt"))
def test_sentences(text: str, sentences: str) -> None:
    assert [text[begin:end] for begin, end in sentence_spans(text)] == sentences.split("\n")
