"""A tokenizer that extends another: ids stay, old text keeps its tokens, new text needs fewer."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models

from brimful.base.errors import BrimfulError
from brimful.commands.prepare import prepare
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.corpus.text.tokenizer_pipelines import SPECIAL_TOKENS
from brimful.corpus.tokenize.extension import extend, other_parts, spellings
from brimful.corpus.tokenize.vocabulary_training import train

KINDS = [("wordpiece", "characters"), ("wordpiece", "pieces"), ("bpe", "characters"), ("bpe", "pieces")]
OLD, NEW = "abdegiklmnor", "cfhjpqstuvwxyz"
HAN = [chr(code) for code in range(0x4E00, 0x4E40)]


def texts_of(letters: str, han: list[str], draw: random.Random) -> list[str]:
    """Sentences of 120 words of these letters and 30 of these characters, again and again."""
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(120)]
    chinese = ["".join(draw.choices(han, k=draw.randint(2, 6))) for _ in range(30)]
    return [
        " ".join(draw.choices(words, k=12)) + ", " + "".join(draw.choices(chinese, k=5)) + "。"
        for _ in range(150)
    ]


@pytest.fixture(params=KINDS, ids="-".join)
def case(request, seed) -> tuple[Tokenizer, Tokenizer, list[str], list[str]]:
    """A tokenizer, what extends it by 60 pieces, and texts of both; each has a letter of the other alone."""
    draw = random.Random(seed)
    old, new = texts_of(OLD, HAN[:30], draw), texts_of(NEW, HAN[30:], draw)
    model, han = request.param
    letters = [*NEW, *HAN[30:]]
    glued = ["a" + letter for letter in NEW]  # so that ##c is a piece too
    tokenizer = train([*old, *(" ".join([*letters, *glued]),) * 5], 500, model=model, han=han)
    return tokenizer, extend(tokenizer, new, 60), old, new


def test_old_pieces_keep_their_ids_and_new_ones_come_last(case) -> None:
    tokenizer, extended, _, new = case
    known, wanted = tokenizer.get_vocab(), extended.get_vocab()
    assert known.items() <= wanted.items()
    assert sorted(wanted.values()) == list(range(len(known) + 60))
    assert other_parts(tokenizer, extended) == []
    assert tokenizer_hash(extend(tokenizer, new, 60)) == tokenizer_hash(extended)
    special = tokenizer.get_added_tokens_decoder()
    assert {i: str(t) for i, t in extended.get_added_tokens_decoder().items()} == {
        i: str(t) for i, t in special.items()
    }
    assert extended.encode("ab", "c").type_ids == tokenizer.encode("ab", "c").type_ids


def test_text_of_other_letters_is_tokenised_as_before(case) -> None:
    tokenizer, extended, old, _ = case
    for text in old:
        assert extended.encode(text).ids == tokenizer.encode(text).ids


def test_the_text_it_was_made_for_takes_fewer_tokens_and_reads_the_same(case) -> None:
    tokenizer, extended, _, new = case
    before = [tokenizer.encode(text) for text in new]
    after = [extended.encode(text) for text in new]
    assert sum(map(len, after)) < 0.85 * sum(map(len, before))  # random texts: 0.80 at worst so far
    for one, other in zip(before, after, strict=True):
        assert tokenizer.decode(one.ids) == extended.decode(other.ids)
    used = Counter(index for encoding in after for index in encoding.ids)
    added = [i for i in extended.get_vocab().values() if i >= tokenizer.get_vocab_size()]
    assert sum(used[i] > 0 for i in added) > 0.5 * len(added)


def test_the_first_new_piece_is_the_most_frequent_pair_within_words(case) -> None:
    tokenizer, extended, _, new = case
    pairs: Counter[tuple[str, ...]] = Counter()
    for text in new:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        for (one, first), (other, second) in pairwise(zip(encoding.tokens, encoding.word_ids, strict=True)):
            if first == second:
                pairs[one, other] += 1
    most = max(pairs.values())
    prefix = "" if tokenizer.model.__class__ is models.BPE else tokenizer.model.continuing_subword_prefix
    joined = {one + other.removeprefix(prefix) for (one, other), n in pairs.items() if n == most}
    assert extended.id_to_token(tokenizer.get_vocab_size()) in joined


def test_new_pieces_are_spelled_by_the_old_ones_where_they_stand(case) -> None:
    tokenizer, extended, _, _ = case
    spelled = spellings(tokenizer, extended, "old")
    size = tokenizer.get_vocab_size()
    assert list(spelled) == list(range(size, size + 60))
    model = tokenizer.model
    prefix = "" if isinstance(model, models.BPE) else model.continuing_subword_prefix
    for index, parts in spelled.items():
        piece = extended.id_to_token(index)
        names = [tokenizer.id_to_token(part) for part in parts]
        assert len(names) > 1
        assert max(parts) < size
        assert names[0].startswith(prefix) == piece.startswith(prefix)
        assert names[0] + "".join(name.removeprefix(prefix) for name in names[1:]) == piece
        if isinstance(model, models.WordPiece) and not (prefix and piece.startswith(prefix)):
            assert tokenizer.encode(piece, add_special_tokens=False).ids == parts


def test_a_new_piece_has_four_chinese_characters_at_most(seed) -> None:
    draw = random.Random(seed)
    han = HAN[:12]
    for model in ("wordpiece", "bpe"):
        tokenizer = train([" ".join(han)] * 5, 400, model=model, han="pieces")
        word = "".join(draw.sample(han, 6))
        extended = extend(tokenizer, [f"{word} {word[:5]} {word}"] * 20, 50)
        added = range(tokenizer.get_vocab_size(), extended.get_vocab_size())
        assert 1 < max(sum(c in han for c in extended.decode([i])) for i in added) <= 4


def test_what_the_old_tokenizer_cannot_spell_has_no_parts() -> None:
    old = train(["abc abd bcd"] * 9, 64)
    state = old.get_vocab() | {"xyz": 64 + 500, "##xyz": 64 + 501}
    new = Tokenizer(models.WordPiece(state, unk_token="[UNK]"))
    new.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    assert spellings(old, new, "old") == {564: [], 565: []}


def test_an_added_token_is_spelled_as_the_text_it_is() -> None:
    old = train(["abc abd bcd, cat"] * 9, 80, lowercase=True)
    new = Tokenizer.from_str(old.to_str())
    new.add_tokens([AddedToken("Bcd-Abc", normalized=False)])
    (parts,) = spellings(old, new, "old").values()
    known = {old.token_to_id("bcd"), old.token_to_id("abc")}
    assert known <= set(parts)
    assert other_parts(old, new) == []


def test_another_vocabulary_is_refused() -> None:
    old = train(["abc abd bcd"] * 9, 80)
    new = train(["xyz xyw yzw"] * 9, 80)
    with pytest.raises(BrimfulError, match=r"another vocabulary than that of runs/a .*--tokenizer runs/a"):
        spellings(old, new, "runs/a")


def test_a_difference_of_the_pipeline_is_named() -> None:
    texts = ["abc abd bcd"] * 9
    cased, uncased = train(texts, 80), train(texts, 80, lowercase=True)
    assert other_parts(cased, uncased) == ["normalizer"]
    assert "pre_tokenizer" in other_parts(uncased, train(texts, 400, model="bpe"))


def test_prepare_extends_and_freezes(corpus_dir: Path, tmp_path: Path, seed: int) -> None:
    text = tmp_path / "new.txt"
    text.write_text("\n".join(texts_of(OLD, HAN, random.Random(seed))), encoding="utf-8")
    options = {"paths": [text], "out": tmp_path / "data", "read": {"split": "line"}, "workers": 1}
    options |= {"tokenizer": str(corpus_dir), "extend": 50}
    prepare(**options)
    old, new = load(corpus_dir), load(tmp_path / "data")
    assert len(spellings(old, new, "old")) == new.get_vocab_size() - old.get_vocab_size() == 50
    assert prepare(**options)["tokens"] == prepare(**options)["tokens"]  # nothing to do
    with pytest.raises(BrimfulError, match="frozen: it was made with extend=50"):
        prepare(**options | {"extend": 40})


def test_what_cannot_be_extended_is_refused_at_once(raw_texts: Path, tmp_path: Path) -> None:
    scores = [*((name, 0.0) for name in SPECIAL_TOKENS), ("a", -1.0), ("b", -1.0)]
    unigram = Tokenizer(models.Unigram(scores, unk_id=1))
    unigram.add_special_tokens(list(SPECIAL_TOKENS))
    unigram.save(str(tmp_path / "tokenizer.json"))
    options = {"paths": [raw_texts], "out": tmp_path / "data", "dry_run": True}
    with pytest.raises(BrimfulError, match="Unigram tokenizer cannot be extended"):
        prepare(**options, tokenizer=str(tmp_path), extend=5)
    with pytest.raises(BrimfulError, match="extend adds pieces to a given tokenizer"):
        prepare(**options, tokenizer="train:800", extend=5)
    with pytest.raises(BrimfulError, match="extend is -1"):
        prepare(**options, tokenizer=str(tmp_path), extend=-1)
