"""Encoded texts: tokens and offsets are those of `tokenizers`, whatever the pipeline, whatever is known."""

import functools
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from brimful.corpus.fragments import memo
from brimful.corpus.fragments.fast_tokenizer import FastTokenizer
from brimful.corpus.text.characters import code_points
from brimful.corpus.text.folding import Folding, normalizer
from brimful.corpus.tokenize.encode import TextTokenizer
from brimful.corpus.tokenize.vocabulary_training import train, train_pieces
from brimful.corpus.words.segmenter import Segmenter

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>"]
TEXTS = [
    "We've seen the naïve café's menu, haven't we? It's $3.14 (or 2,718) at http://www.example.com/a_b?c=d!",
    "使用语言模型来预测下一个词的probability。我们使用语言模型，腾讯控股(00700)今天上涨百分之三。",
    "顺利的无创dna检测crying了 江南style iPhone15手机",
    "한국어 문장 らーめん カタカナ คำภาษาไทย हिन्दी में 😀👨‍👩‍👧 ½ ﬁne ①㎏ ▁x▁",
] * 3
# Words, and what makes trouble at their borders.
FRAGMENTS = [
    "the", " cafe\u0301s", "naïve", "don't", "'s", "'ve", "It'S", " ", "  ", "\n", "\r\n", "\t",
    "\u3000", "\xa0", "\u2028", "中国", "语言模型", "，", "。", "らーめん", "ｶﾞ", "한국어",
    "\u1112\u1161\u11ab", "คำ", "हिन्दी", "👨‍👩‍👧", "❤️", "½", "ﬁ", "㈱", "㍿", "①", "…", "¨", "İ", "ß", "Å",
    "=\u0338", "国\u0301", "\u037a", "\u1fc1", "\u037a\xad\U0001d165", "\u1fc1\u0345",
    "\u0301", "\u200b", "\u200d", "\ufffd", "\x00", "\x07", "\xad", "▁", "▁▁", " ▁", "[MASK]", "<s>",
    "##s", "``", "''", "http://a.b/c?d=e!", "3.14", "1,000", "x", "A", "Ω", "ﬃ", "豈", "𠀀", "々", "〇",
    "\U0001f1e8\U0001f1f3", "й", "ё", "ά\u0301", "ΛΌΓΟΣ", "λόγος", "ıI",
    "می\u200cخواهم", "\u180e", "ൎ", "\u0600", "１", "Ａ", "~", "_", "-",
]  # fmt: skip
DOCUMENTS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    ),
    min_size=1,
    max_size=4,
)


def wordpiece(normalizer: normalizers.Normalizer, pre_tokenizer: object | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=420, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_level(
    *, space: bool = False, normalizer: object | None = None, han: bool = False, trim: bool | None = None
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    if han:
        split = pre_tokenizers.Split(Regex(r"\p{Han}{1,3}"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, tokenizer.pre_tokenizer])
    if trim is not None:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim, add_prefix_space=space)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def unigram(pre_tokenizer: object, *steps: object) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    if steps:
        tokenizer.normalizer = normalizers.Sequence(list(steps))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=250, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def bert(**options: bool | None) -> normalizers.Normalizer:
    return normalizers.BertNormalizer(**options)


def folded(folding: Folding) -> Tokenizer:
    return wordpiece(normalizer(folding, han_apart=True))


def sentencepiece_like() -> Tokenizer:
    """As this project's SentencePiece pipeline: no piece joins a word and punctuation."""
    splits = [
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Split(Regex(r"\p{Han}{1,32}"), "isolated"),
        pre_tokenizers.Split(Regex(r"▁?[\p{P}\p{S}&&[^▁]]"), "isolated"),
    ]
    steps = [bert(handle_chinese_chars=False), normalizers.NFC()]
    steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    return unigram(pre_tokenizers.Sequence(splits), *steps)


def split_regex() -> Tokenizer:
    """As cl100k has it: a regular expression that looks across blanks."""
    tokenizer = byte_level()
    pattern = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+"
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    no_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, no_regex])
    return tokenizer


def with_added_word() -> Tokenizer:
    tokenizer = wordpiece(bert())
    tokenizer.add_tokens([AddedToken("the x", lstrip=True), AddedToken("语言")])
    return tokenizer


def pieces(nfkc: bool = False) -> Tokenizer:
    tokenizer = train_pieces(TEXTS * 2, 300, Folding.of(TEXTS))
    if nfkc:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), tokenizer.normalizer])
    return tokenizer


REMEMBERED: dict[str, Callable[[], Tokenizer]] = {
    "BERT uncased": lambda: wordpiece(bert()),
    "trained": lambda: train(TEXTS, 400),
    "trained, folded": lambda: train(TEXTS, 400, lowercase=True),
    "trained, accents folded": lambda: folded(Folding(("Latin", "Greek", "Cyrillic"), (("Greek", 0.0),))),
    "trained, as in Turkish": lambda: folded(Folding(("Greek",), dotless=True)),
    "byte-level, accents folded": lambda: byte_level(
        han=True, normalizer=normalizer(Folding(("Latin", "Cyrillic")), drop=False, han_apart=False)
    ),
    "BERT cased": lambda: wordpiece(bert(lowercase=False)),
    "BERT keeps accents": lambda: wordpiece(bert(strip_accents=False)),
    "BERT joins Han": lambda: wordpiece(bert(handle_chinese_chars=False, clean_text=False)),
    "BERT after NFKC": lambda: wordpiece(normalizers.Sequence([normalizers.NFKC(), bert(lowercase=False)])),
    "BERT, NFC last": lambda: wordpiece(normalizers.Sequence([bert(strip_accents=False), normalizers.NFC()])),
    "Han pieces": pieces,
    "Han pieces after NFKC": lambda: pieces(nfkc=True),
    "byte-level": byte_level,
    "byte-level with prefix space": lambda: byte_level(space=True, trim=True),
    "byte-level, trimmed": lambda: byte_level(trim=True),
    "byte-level, offsets whole": lambda: byte_level(space=True, trim=False),
    "byte-level NFC": lambda: byte_level(normalizer=normalizers.NFC(), trim=True),
    "byte-level NFKC lower case": lambda: byte_level(
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    ),
    "byte-level, Han apart": lambda: byte_level(han=True),
    "byte-level uncased, Han apart": lambda: byte_level(
        han=True, normalizer=normalizers.Sequence([bert(handle_chinese_chars=False), normalizers.NFC()])
    ),
    "Metaspace NFKC": lambda: unigram(pre_tokenizers.Metaspace(), normalizers.NFKC()),
    "Metaspace first": lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "Metaspace never": lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="never"), normalizers.Nmt()),
    "Metaspace, ALBERT's steps": lambda: unigram(
        pre_tokenizers.Metaspace(),
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " "),
    ),
    "Metaspace after blanks": lambda: unigram(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        normalizers.Strip(), normalizers.NFKC(),
    ),
    "Metaspace, words apart": sentencepiece_like,
}  # fmt: skip
ASKED: dict[str, Callable[[], Tokenizer]] = {
    "a regular expression of its own": split_regex,
    "added words": with_added_word,
    "Replace across blanks": lambda: unigram(pre_tokenizers.Metaspace(), normalizers.Replace("e x", "y")),
    "prepended": lambda: unigram(pre_tokenizers.Metaspace(), normalizers.Prepend("▁")),
    "Whitespace": lambda: wordpiece(normalizers.NFKC(), pre_tokenizers.Whitespace()),
}


@functools.cache
def made(name: str) -> tuple[Tokenizer, FastTokenizer]:
    """The tokenizer, and a fast one that remembers what earlier examples held."""
    tokenizer = (REMEMBERED | ASKED)[name]()
    tokenizer.encode_special_tokens = True
    return tokenizer, FastTokenizer(tokenizer)


def check(tokenizer: Tokenizer, fast: FastTokenizer, texts: list[str]) -> None:
    tokens, begins, lengths = fast(texts, code_points("\n".join(texts)))
    base = end = 0
    for text, length in zip(texts, lengths, strict=True):
        expected = tokenizer.encode(text, add_special_tokens=False)
        begin, end = end, end + int(length)
        found = list(zip(tokens[begin:end].tolist(), (begins[begin:end] - base).tolist(), strict=True))
        wanted = [(token, first) for token, (first, _) in zip(expected.ids, expected.offsets, strict=True)]
        assert found == wanted, f"{text!r}: {expected.tokens}"
        base += len(text) + 1
    assert end == len(tokens)


@pytest.mark.cases(12)
@pytest.mark.parametrize("name", [*REMEMBERED, *ASKED])
@settings(max_examples=150, deadline=None)
@given(texts=DOCUMENTS)
@example(TEXTS)
@example(["中国" * 40 + "豈" + "中国" * 40, "", " ", "国" * 200 + "X" * 50])
def test_tokens_and_offsets_are_those_of_the_tokenizer(name: str, texts: list[str]) -> None:
    check(*made(name), texts)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["{}{}", "x {}{}, y"])
@pytest.mark.parametrize("name", [*REMEMBERED, *ASKED])
def test_pairs_of_fragments(name: str, form: str) -> None:
    check(*made(name), [form.format(a, b) for a in FRAGMENTS for b in FRAGMENTS])


@pytest.mark.parametrize("name", REMEMBERED)
def test_known_pipelines_ask_for_a_segment_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, fast = made(name)
    text = "the cafe said that, 中国 the end"
    check(tokenizer, fast, [text])
    monkeypatch.setattr(fast, "_ask", lambda *_: pytest.fail("asked again"))
    tokens, _, _ = fast([text], code_points(text))
    assert tokens.tolist() == tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", ["BERT uncased", "Han pieces", "byte-level"])
@pytest.mark.parametrize(("fragments", "characters"), [(64, 1 << 12), (1 << 12, 1200), (1, 32)])
def test_a_full_memo_changes_nothing(
    name: str, fragments: int, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, _ = made(name)
    monkeypatch.setattr(memo, "FRAGMENTS", fragments)
    monkeypatch.setattr(memo, "CHARACTERS", characters)
    fast = FastTokenizer(tokenizer)
    generator = np.random.default_rng(0)
    for _ in range(30):
        check(tokenizer, fast, ["".join(generator.choice(FRAGMENTS, 60)) for _ in range(3)])


@pytest.mark.parametrize("name", ["BERT uncased", "byte-level", "Metaspace NFKC"])
def test_counts_by_script(name: str) -> None:
    tokenizer, _ = made(name)
    texts = ["the 中国 ω", "らー 한 ", ""]
    encoded = TextTokenizer(tokenizer, Segmenter())(texts)
    characters = {script: counts["characters"] for script, counts in encoded.scripts.items()}
    assert characters == {"Latin": 3, "Han": 2, "other": 1, "kana": 2, "Hangul": 1}
    unknown = tokenizer.token_to_id(json.loads(tokenizer.to_str())["model"].get("unk_token") or "[UNK]")
    ids = encoded.batch.tokens.tolist()
    assert sum(counts["tokens"] for counts in encoded.scripts.values()) == len(ids)
    lost = 0
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        for token, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
            lost += len(text[begin:end].replace(" ", "")) if token == unknown else 0
    assert sum(counts["unknown"] for counts in encoded.scripts.values()) == lost
    assert encoded.scripts["Latin"]["tokens"] == len(tokenizer.encode("the", add_special_tokens=False))


@pytest.mark.parametrize("seed", range(3))
def test_proteins_by_character(seed: int) -> None:
    generator = np.random.default_rng(seed)
    proteins = ["".join(generator.choice(list("ACDEFGHIKLMNPQRSTVWY"), n)) for n in (400, 150, 33, 32)]
    tokenizer = train(proteins, 1000, model="characters")
    encoded = TextTokenizer(tokenizer, Segmenter())(proteins)
    assert encoded.batch.lengths.tolist() == [400, 150, 33, 32]
    assert tokenizer.decode(encoded.batch.tokens[:400].tolist()) == proteins[0]
    # Each residue is masked by itself, except in a word that is short enough to be one.
    assert encoded.batch.word_starts[:583].all()
    assert encoded.batch.word_starts[583:].tolist() == [True] + 31 * [False]
    assert not encoded.lacking


def test_nothing() -> None:
    encoder = TextTokenizer(made("BERT uncased")[0], Segmenter())
    for texts in ([], ["", " ", "\n"]):
        encoded = encoder(texts)
        assert encoded.batch.lengths.tolist() == [0] * len(texts)
        assert len(encoded.batch.tokens) == len(encoded.batch.word_starts) == 0


def test_a_character_that_no_word_may_go_on_with_is_lacking() -> None:
    """WordPiece has a piece for a character that begins a word, and another for it behind a letter."""
    vocabulary = {piece: i for i, piece in enumerate(["[UNK]", "a", "b", "c", "##a", "##b"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    encoded = TextTokenizer(tokenizer, Segmenter("en"))(["abc ab abc acb a"])
    assert encoded.lacking == {"c": 3}
