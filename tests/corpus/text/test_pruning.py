"""Pruned vocabularies: texts of the corpus keep their encodings, others fall back to smaller pieces."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from brimful.base.errors import BrimfulError
from brimful.corpus.text.pruning import Pruned, prune
from brimful.corpus.text.pruning_rules import select_same_scripts
from brimful.corpus.text.special_ids import special_ids
from brimful.corpus.text.tokenizer import load, save
from brimful.corpus.tokenize.vocabulary_training import train

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ENGLISH = [
    "The quick brown fox jumps over the lazy dog, again and again; foxes are quick.",
    "Packing sequences fills every batch to the brim with real tokens.",
    "Tokenizers split words into pieces, and pieces into smaller pieces.",
]
CHINESE = ["顺利的检测，江南风格。", "中华人民共和国的服务态度很好。", "房间很小，服务不推荐。"]
RUSSIAN = ["Быстрая лиса перепрыгнула через ленивую собаку.", "Слова делятся на части."]
TEXTS = [*ENGLISH, *CHINESE, *RUSSIAN] * 4


def assert_same_encodings(old: Tokenizer, pruned: Pruned, texts: list[str]) -> None:
    new, kept = pruned.tokenizer, pruned.old_ids
    for special in (True, False):
        before = old.encode_batch(texts, add_special_tokens=special)
        after = new.encode_batch(texts, add_special_tokens=special)
        for one, other in zip(before, after, strict=True):
            assert one.ids == kept[other.ids].tolist()
            assert (one.tokens, one.offsets, one.type_ids) == (other.tokens, other.offsets, other.type_ids)


def assert_consistent(old: Tokenizer, pruned: Pruned) -> None:
    """Every piece has its old name, ids are contiguous, and a copy from the file is the same tokenizer."""
    new, kept = pruned.tokenizer, pruned.old_ids
    assert kept.dtype == np.int64
    assert new.get_vocab_size() == len(kept) == len(set(kept.tolist()))
    assert sorted(new.get_vocab().values()) == list(range(len(kept)))
    assert list(map(old.id_to_token, kept.tolist())) == list(map(new.id_to_token, range(len(kept))))
    assert Tokenizer.from_str(new.to_str()).to_str() == new.to_str()


# Any small vocabulary over a small alphabet, and texts in which each of its pieces may or may not occur.
WORDS = st.text(alphabet="abc", min_size=1, max_size=3)
SENTENCES = st.lists(st.text(alphabet="abcdeя ,", max_size=24), min_size=1, max_size=30)


@st.composite
def corpora(draw, tokenizer: Tokenizer) -> list[str]:
    """Few words, so that pieces are dropped; many consist of pieces."""
    pieces = [piece.removeprefix("##").removesuffix("</w>") for piece in tokenizer.get_vocab()]
    parts = st.sampled_from(sorted({piece for piece in pieces if set(piece) <= set("abc")} | {"a"}))
    words = st.lists(parts, min_size=1, max_size=4).map("".join) | st.text(alphabet="abcя,", max_size=8)
    return draw(st.lists(st.lists(words, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=3))


@st.composite
def unigram(draw) -> Tokenizer:
    # `tokenizers` reads a number of many digits with an error in the last bit.
    scores = st.integers(-1280, 0).map(lambda n: n / 64) | st.integers(-20, 0).map(float)
    pieces = draw(st.lists(WORDS, unique=True, max_size=30))
    fallback = draw(st.booleans())
    names = ["▁", *pieces, *([f"<0x{byte:02X}>" for byte in range(256)] if fallback else [])]
    vocabulary = [("<unk>", 0.0), *((name, draw(scores)) for name in names)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=draw(st.booleans()))
    return tokenizer


@st.composite
def word_piece(draw) -> Tokenizer:
    starts, continued = (draw(st.lists(WORDS, unique=True, max_size=20)) for _ in range(2))
    names = ["[UNK]", *starts, *(f"##{piece}" for piece in continued)]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=12))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


@st.composite
def bpe(draw) -> Tokenizer:
    """Merges in any order, so that a piece may have several ways to be built, and some are never built."""
    byte_level = draw(st.booleans())
    prefix = "" if byte_level else draw(st.sampled_from(["", "##"]))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level else list("abc,")
    suffix = "" if byte_level else draw(st.sampled_from(["", "</w>"]))
    if prefix:
        letters += [prefix + letter for letter in letters]
    if suffix:
        letters += [letter + suffix for letter in letters]
    if not byte_level:
        letters.append("[UNK]")
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    parts = [letter for letter in letters if letter.strip("#</w>") in set("abc")]
    merges = []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(parts)), draw(st.sampled_from(parts))
        right = right if right.startswith(prefix) else prefix + right
        name = left + right.removeprefix(prefix)
        if suffix and left.endswith(suffix):
            continue
        if right in vocabulary and (left, right) not in merges and len(name) < 14:
            vocabulary.setdefault(name, len(vocabulary))
            parts.append(name)
            merges.append((left, right))
    options = {"continuing_subword_prefix": prefix} if prefix else {}
    if suffix:
        options["end_of_word_suffix"] = suffix
    if not byte_level:
        options["unk_token"] = "[UNK]"
    fuse, ignore = draw(st.booleans()), draw(st.booleans())
    ordered = merges if draw(st.booleans()) else draw(st.permutations(merges))
    tokenizer = Tokenizer(models.BPE(vocabulary, ordered, fuse_unk=fuse, ignore_merges=ignore, **options))
    tokenizer.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else pre_tokenizers.Whitespace()
    )
    return tokenizer


@settings(deadline=None)
@pytest.mark.parametrize("kind", [unigram, word_piece, bpe], ids=lambda kind: kind.__name__)
@given(st.data())
def test_any_vocabulary_encodes_its_corpus_as_before(kind, data) -> None:
    tokenizer = data.draw(kind())
    tokenizer.add_special_tokens(["<new>"])
    corpus = data.draw(corpora(tokenizer))
    pruned = prune(tokenizer, iter(corpus))
    assert_same_encodings(tokenizer, pruned, corpus)
    assert_consistent(tokenizer, pruned)
    pruned.tokenizer.encode_batch(data.draw(SENTENCES))


def trained_unigram() -> Tokenizer:
    """As XLM-R has it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")],
    )
    tokenizer.add_special_tokens([*SPECIAL[:-1], AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def roberta() -> Tokenizer:
    """Byte-level BPE whose special ids are not at the start, with a Sequence of post-processors."""
    tokenizer = train(TEXTS, 520, model="bpe", han="pieces", lowercase=True)
    state = json.loads(tokenizer.to_str())
    ids = {name: state["model"]["vocab"][name] for name in ("[CLS]", "[SEP]")}
    roberta = processors.RobertaProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), roberta])
    tokenizer.add_tokens(["brimful"])
    return tokenizer


TRAINED = {
    "unigram": trained_unigram,
    "wordpiece": lambda: train(TEXTS, 420),
    "wordpiece of pieces": lambda: train(TEXTS, 420, han="pieces"),
    "byte-level bpe": roberta,
}


@pytest.fixture(scope="module", params=TRAINED)
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("trained")
    save(TRAINED[request.param](), folder)
    return load(folder)


def test_a_trained_vocabulary_shrinks_to_a_corpus(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus = [ENGLISH[0], ENGLISH[2]] * 15
    pruned = prune(tokenizer, corpus)
    assert_same_encodings(tokenizer, pruned, corpus)
    assert_consistent(tokenizer, pruned)
    sizes = pruned.statistics
    assert (sizes.pieces_before, sizes.pieces_after) == (tokenizer.get_vocab_size(), len(pruned.old_ids))
    assert sizes.used < sizes.pieces_after < sizes.pieces_before
    assert sizes.texts == 30
    save(pruned.tokenizer, tmp_path)
    loaded = load(tmp_path)
    assert loaded.to_str() == pruned.tokenizer.to_str()
    old, new = special_ids(tokenizer), special_ids(loaded)
    for role in ("pad", "cls", "sep", "mask", "unk"):
        assert pruned.old_ids[getattr(new, role)] == getattr(old, role)
    pair = loaded.encode("quick", "fox")
    assert (pair.ids[0], pair.ids[-1]) == (new.cls, new.sep)


def unknown_tokens(tokenizer: Tokenizer, texts: list[str]) -> int:
    ids = [index for each in tokenizer.encode_batch(texts, add_special_tokens=False) for index in each.ids]
    return ids.count(special_ids(tokenizer).unk)


def test_unseen_text_gets_smaller_pieces_not_unknown_ones(tokenizer: Tokenizer) -> None:
    pruned = prune(tokenizer, [ENGLISH[0]] * 3)
    unseen = ENGLISH[1:]
    before, after = (sum(map(len, each.encode_batch(unseen))) for each in (tokenizer, pruned.tokenizer))
    assert after > before
    assert unknown_tokens(tokenizer, unseen) == unknown_tokens(pruned.tokenizer, unseen) == 0
    foreign = unknown_tokens(pruned.tokenizer, RUSSIAN)
    assert (foreign == 0) == (tokenizer.model.__class__.__name__ == "BPE")
    assert unknown_tokens(tokenizer, RUSSIAN) == 0


def test_single_characters_of_the_scripts_stay() -> None:
    for name, form in (("unigram", "{}"), ("wordpiece", "{}"), ("wordpiece", "##{}")):
        tokenizer = TRAINED[name]()
        single = {c for c in "".join(TEXTS) if tokenizer.token_to_id(form.format(c)) is not None}
        chinese = prune(tokenizer, [CHINESE[0]] * 2).tokenizer
        stay = {c for c in single if chinese.token_to_id(form.format(c)) is not None}
        # Unused Chinese characters and punctuation stay; Latin and Cyrillic letters go, but for the one that
        # may have the lowest score.
        expected = {c for c in single if not c.isalpha() or "一" <= c <= "鿿"}
        assert expected <= stay
        assert len(stay - expected) <= (name == "unigram")


def test_unknown_words_stay_unknown() -> None:
    """`abc` matches `ab`, then nothing. Without `ab` it would match `a` and `##bc`, which other words use."""
    pieces = {piece: number for number, piece in enumerate(["[UNK]", "ab", "a", "##bc", "##b", "x", "##y"])}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[MASK]"])
    corpus = ["x[MASK]abc xbc a", "xbc"]
    pruned = prune(tokenizer, corpus)
    assert_same_encodings(tokenizer, pruned, corpus)
    assert pruned.tokenizer.encode("abc").tokens == ["[UNK]"]


def test_the_unknown_penalty_of_unigram_stays() -> None:
    """An unknown character scores 10 below the lowest piece, whether or not that piece occurs."""
    pieces = [("<unk>", 0.0), ("a", -1.0), ("bc", -1.0), ("aяb", -60.0), ("c", -60.0), ("lowest", -120.0)]
    corpus = ["aяbc", "abc"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    assert tokenizer.encode("aяbc").tokens == ["aяb", "c"]
    without = Tokenizer(models.Unigram(pieces[:-1], unk_id=0))
    assert without.encode("aяbc").tokens == ["a", "я", "bc"]
    assert_same_encodings(tokenizer, prune(tokenizer, corpus), corpus)


def test_without_an_unknown_token_every_character_stays() -> None:
    tokenizer = Tokenizer(models.Unigram([("a", -1.0), ("b", -1.0), ("я", -2.0), ("яя", -2.0)], unk_id=None))
    pruned = prune(tokenizer, ["ab"]).tokenizer
    assert pruned.encode("яя").tokens == ["я", "я"]


def test_texts_of_an_iterator_are_read_in_batches(monkeypatch) -> None:
    tokenizer = TRAINED["unigram"]()
    texts = [f"{word} brown" for text in TEXTS for word in text.split()]
    expected = prune(tokenizer, texts)
    monkeypatch.setattr("brimful.corpus.text.pruning._BATCH_CHARACTERS", 30)
    pruned = prune(tokenizer, (text for text in texts))
    assert pruned.statistics == expected.statistics
    assert pruned.old_ids.tolist() == expected.old_ids.tolist()


def test_a_changed_encoding_is_refused(monkeypatch) -> None:
    """The check is there for pipelines that the rules do not know."""
    tokenizer = TRAINED["wordpiece"]()
    monkeypatch.setattr("brimful.corpus.text.pruning.select_pieces", lambda *_: set(range(5)))
    with pytest.raises(BrimfulError, match=r"the encoding of 'The quick brown .* would change"):
        prune(tokenizer, ENGLISH)


def test_what_cannot_be_pruned() -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(BrimfulError, match="WordLevel"):
        prune(words, ["a"])
    with pytest.raises(BrimfulError, match="no texts"):
        prune(TRAINED["wordpiece"](), [])


@pytest.mark.parametrize(
    ("text", "letters"), [("b", "aÄ"), ("国", "中かカ"), ("Я한", "ж한"), ("\ue000 \U0010ffff", ""), ("", "")]
)
def test_characters_of_the_scripts_of_a_text(text: str, letters: str) -> None:
    assert select_same_scripts(set("aÄж中かカ한αא0,\u0301\ue000 \t"), text) == set(letters + "0,\u0301\t")
