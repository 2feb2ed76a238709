"""Tokenizers: the same one from every training, every kind loaded, read back by transformers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import (
    TokenizerSettings,
    mask_id,
    name_like,
    remember_settings,
    settings_of,
    special_ids,
    truncation_side,
)
from brimful.corpus.text.tokenizer import load, save, tokenizer_hash
from brimful.corpus.text.tokenizer_pipelines import LONGEST_RUN, with_nfkc
from brimful.corpus.tokenize.vocabulary_training import thin_out, train

TEXTS = [
    "The quick brown fox jumps over the lazy dog, again and again; foxes are quick.",
    "顺利的无创dna检测，江南style。中华人民共和国。",
    "Ünïcödé ∑ symbols ★☆ and ελληνικά, кириллица 한국어 ０１２ ﬁne",
] * 5

TRAIN = """
import sys
from brimful.corpus.tokenize.vocabulary_training import train
sys.stdout.reconfigure(encoding="utf-8")
texts = eval(sys.stdin.read())
for model in ("wordpiece", "bpe"):
    for han in ("characters", "pieces"):
        print(train(texts, 380, model=model, han=han).to_str())
"""


def test_training_is_deterministic_across_processes() -> None:
    outputs = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", TRAIN],
            input=repr(TEXTS),
            capture_output=True,
            encoding="utf-8",
            check=True,
            env={"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


KINDS = [(model, han) for model in ("wordpiece", "bpe") for han in ("characters", "pieces")]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def kind(request) -> tuple[str, str, Tokenizer]:
    model, han = request.param
    return model, han, train(TEXTS, 420, model=model, han=han, nfkc=True)


def test_han_characters_stand_alone_or_form_pieces_of_up_to_four(kind) -> None:
    _, han, tokenizer = kind
    text = "无创dna检测，中华人民共和国 fox"
    tokens = [text[a:b] for a, b in tokenizer.encode(text, add_special_tokens=False).offsets]
    longest = max(sum("一" <= c <= "鿿" for c in token) for token in tokens)
    assert longest == 1 if han == "characters" else 1 < longest <= 4
    assert not any("d" in token and "创" in token for token in tokens)


def test_transformers_gives_the_same_ids(kind, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    _, _, tokenizer = kind
    save(tokenizer, tmp_path, model_max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.model_max_length, len(theirs)) == (128, tokenizer.get_vocab_size())
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))
    ids = special_ids(tokenizer)
    assert (theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id) == (ids.pad, ids.unk, ids.mask)
    assert (theirs.cls_token_id, theirs.sep_token_id) == (ids.cls, ids.sep)
    ours = load(tmp_path)
    for text in [*TEXTS[:3], "  two  blanks\n\nand ﬁne 检测 [MASK] end "]:
        encoded = ours.encode(text).ids
        assert theirs(text)["input_ids"] == encoded
        assert theirs.decode(encoded, skip_special_tokens=True) == tokenizer.decode(encoded)
    pair = tokenizer.encode("quick", "fox")
    assert theirs("quick", "fox")["token_type_ids"] == pair.type_ids
    assert (pair.ids[0], pair.ids[-1], pair.type_ids[-1]) == (ids.cls, ids.sep, 1)


HAN_TEXTS = [
    *["这家酒店的服务员态度非常好，就是价格不便宜！"] * 5,
    *["不推荐这家酒店，服务态度不好。", "the hotel was great, the price was not"] * 5,
]
HAN_TOKENIZER = train(HAN_TEXTS, 120, han="pieces")


def test_frequent_words_are_pieces_with_one_id_wherever_they_stand() -> None:
    first = HAN_TOKENIZER.encode("服务员态度好", add_special_tokens=False)
    later = HAN_TOKENIZER.encode("好服务员态度", add_special_tokens=False)
    assert max(len(piece) for piece in first.tokens) > 1
    assert sorted(first.ids) == sorted(later.ids)
    assert not any(piece.startswith("##") for piece in HAN_TOKENIZER.get_vocab())


def test_an_unknown_character_hides_nothing_but_itself() -> None:
    tokens = HAN_TOKENIZER.encode("酒店㐀的价格", add_special_tokens=False).tokens
    assert tokens.count("[UNK]") == 1
    assert "".join(token for token in tokens if token != "[UNK]") == "酒店的价格"


@given(text=st.text(alphabet="这家酒店的服务员态度非常好就是价格不便宜，！ ", max_size=5 * LONGEST_RUN))
def test_pieces_spell_the_text(text: str) -> None:
    tokens = HAN_TOKENIZER.encode(text, add_special_tokens=False).tokens
    assert "".join(tokens) == "".join(text.split())


CASED_BPE = train(TEXTS, 340, model="bpe")


@settings(deadline=None)
@given(st.text())
def test_cased_bpe_spells_every_text_as_it_is(text: str) -> None:
    CASED_BPE.encode_special_tokens = True
    assert CASED_BPE.decode(CASED_BPE.encode(text, add_special_tokens=False).ids) == text


@pytest.mark.parametrize("model", ["wordpiece", "bpe"])
def test_case_and_accents(model: str) -> None:
    texts = ["Fox fox FOX, 한국어 ガギ में ми́р", "Äpfel", *["and so on, as it has always been"] * 50] * 5
    cased = train(texts, 400, model=model)
    assert len({tuple(cased.encode(word).ids) for word in ("Fox", "fox", "FOX")}) == 3
    assert cased.encode("Apfel").ids != cased.encode("Äpfel").ids
    folded = train(texts, 400, model=model, lowercase=True)
    assert folded.encode("apfel FOX").ids == folded.encode("Äpfel fox").ids
    assert folded.decode(folded.encode("한국어 ガギ में").ids) == "한국어 ガギ में"
    assert folded.normalizer.normalize_str("한국어 ガギ में ми́р") in ("한국어 ガギ में ми́р", "한국어 ガギ में мир")


@pytest.mark.parametrize("model", ["wordpiece", "bpe"])
@pytest.mark.parametrize("han", ["characters", "pieces"])
def test_overlong_words_teach_nothing(model: str, han: str) -> None:
    junk = ["x" * 1000, "foo " + "yz" * 500 + " bar", "q" * 200_000]
    with_junk = train([*TEXTS, *junk], 400, model=model, han=han)
    assert not any(piece in token for token in with_junk.get_vocab() for piece in ("xx", "yz", "qq"))


def test_with_nfkc() -> None:
    plain = train(TEXTS, 300)
    fixed = with_nfkc(plain)
    assert "[UNK]" not in fixed.encode("ｆｏｘ").tokens
    assert fixed.encode("ｆｏｘ").ids == plain.encode("fox").ids
    assert fixed.encode("ｆｏｘ jumps").offsets[1:3] == [(0, 3), (4, 9)]
    assert with_nfkc(fixed) is fixed
    assert tokenizer_hash(with_nfkc(plain)) == tokenizer_hash(fixed)
    bare = Tokenizer(models.BPE())
    assert with_nfkc(bare).normalizer.normalize_str("ﬁ") == "fi"
    bare.normalizer = normalizers.NFKC()
    assert with_nfkc(bare) is bare


def test_frequent_characters_win_a_small_vocabulary() -> None:
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 500)))
    tokenizer = train(["的一是不" * 100, rare], 100)
    assert tokenizer.get_vocab_size() <= 100
    assert tokenizer.encode("的一是不", add_special_tokens=False).tokens == list("的一是不")


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [(["a"], 10, "too small"), ([], 400, "are empty"), ([" \n"], 400, "are empty")],
)
@pytest.mark.parametrize(("model", "han"), KINDS)
def test_impossible_training(texts: list[str], size: int, message: str, model: str, han: str) -> None:
    with pytest.raises(BrimfulError, match=message):
        train(texts, size, model=model, han=han)


def test_save_and_load(tmp_path: Path) -> None:
    tokenizer = train(TEXTS, 300)
    plain = tokenizer_hash(tokenizer)
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(4)
    save(tokenizer, tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert tokenizer_hash(load(path)) == plain


@given(st.lists(st.text(max_size=9), min_size=1), st.integers(1, 60))
def test_thinned_texts_are_evenly_taken_and_bounded(texts: list[str], most: int) -> None:
    kept = thin_out(iter(texts), most)
    stride = next(2**power for power in range(9) if texts[:: 2**power] == kept)
    assert len(kept) == 1 or sum(map(len, kept)) <= most
    assert stride == 1 or sum(map(len, texts[:: stride // 2])) > most


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_vocab_txt_keeps_line_numbers_as_ids(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("transformers")
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "", "the", "fox", "", "dog"]
    (tmp_path / "vocab.txt").write_text("\ufeff" + ending.join([*lines, "", ""]), "utf-8", newline="")
    (tmp_path / "tokenizer_config.json").write_text('\ufeff{"do_lower_case": false}', "utf-8")
    for path in (tmp_path, tmp_path / "vocab.txt"):
        tokenizer = load(path)
        assert tokenizer.get_vocab_size() == len(lines)
        assert tokenizer.encode("the fox dog", add_special_tokens=False).ids == [7, 8, 10]
        assert tokenizer.encode("Fox").tokens == ["[CLS]", "[UNK]", "[SEP]"]
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\n")
    assert load(tmp_path).encode("a b").ids == [4, 2, 1, 3]  # missing ends follow the pieces
    (tmp_path / "vocab.txt").write_text("[PAD]\na\n")
    with pytest.raises(BrimfulError, match=r"lacks \[UNK\].*name another as unk_token"):
        load(tmp_path)


def test_vocab_json_with_merges(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "f", "o", "x", "Ġ", "fo", "fox", "Ġfox"]
    vocabulary = json.dumps({word: number for number, word in enumerate(words)})
    (tmp_path / "vocab.json").write_text(vocabulary, encoding="utf-8")
    with pytest.raises(BrimfulError, match=r"AutoTokenizer cannot read .*merges"):
        load(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nf o\nfo x\nĠ fox\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    for path in (tmp_path, tmp_path / "vocab.json"):
        assert load(path).encode("fox fox").ids == [0, 10, 11, 2]
    (tmp_path / "vocab.json").write_text('{"f": 0}')
    with pytest.raises(BrimfulError, match=r"vocab.json"):
        load(tmp_path)


def test_special_tokens_of_roberta_and_missing_ones(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<mask>"])
    ids = special_ids(tokenizer)
    assert (ids.cls, ids.pad, ids.sep, ids.mask, ids.unk) == (0, 1, 2, 3, None)
    bare = Tokenizer(models.BPE())
    bare.add_special_tokens(["<s>", "<pad>", "</s>"])
    assert special_ids(bare).mask is None
    with pytest.raises(BrimfulError, match=r"no mask token \(looked for \[MASK\], <mask>\)"):
        mask_id(bare)


def test_special_tokens_have_the_names_that_the_files_say(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 4, "<unk>": 5}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<bos>", "<eos>", "<padding>", "[CLS]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        BrimfulError, match=r"the tokenizer of .* has no pad token .*pad_token in tokenizer_config.json"
    ):
        load(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": "<bos>", "eos_token": {"content": "<eos>"}, "pad_token": "<padding>"})
    )
    loaded = load(tmp_path)
    ids = special_ids(loaded)
    assert [*map(loaded.id_to_token, (ids.cls, ids.sep, ids.pad))] == ["<bos>", "<eos>", "<padding>"]
    save(loaded, tmp_path / "saved")
    assert special_ids(load(tmp_path / "saved")) == ids
    remember_settings(loaded, TokenizerSettings(settings_of(loaded).roles, "left"))
    copied = name_like(with_nfkc(loaded), loaded)
    assert (special_ids(copied), truncation_side(copied)) == (ids, "left")


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match="no tokenizer in"):
        load(tmp_path)
    with pytest.raises(BrimfulError, match="no tokenizer at"):
        load(tmp_path / "absent.json")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": "?"}))
    with pytest.raises(BrimfulError, match="not a tokenizer"):
        load(tmp_path)


@pytest.mark.parametrize("own", [True, False])
def test_an_id_that_no_vocabulary_has(tmp_path: Path, own: bool) -> None:
    """`tokenizers` would count up to it for minutes."""
    save(train(TEXTS, 100), tmp_path)
    file = tmp_path / "tokenizer.json"
    state = json.loads(file.read_text())
    state["model"]["vocab"]["&"] = 2**31
    file.write_text(json.dumps(state))
    if not own:
        (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(BrimfulError, match=r"tokenizer\.json has ids up to 2,147,483,648"):
        load(tmp_path)
