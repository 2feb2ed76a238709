"""Tokenizers: the same one from every training, every kind loaded, read back by transformers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from brimful.corpus.tokenizer import load, save, special_ids, tokenizer_hash, train
from brimful.errors import BrimfulError

TEXTS = [
    "The quick brown fox jumps over the lazy dog, again and again; foxes are quick.",
    "顺利的无创dna检测，江南style。中华人民共和国。",
    "Ünïcödé ∑ symbols ★☆ and ελληνικά, кириллица 한국어 ０１２ ﬁne",
] * 5

TRAIN = """
import sys
from brimful.corpus.tokenizer import train
sys.stdout.reconfigure(encoding="utf-8")
print(train(eval(sys.stdin.read()), 300).to_str())
"""


def test_training_is_deterministic_across_processes() -> None:
    outputs = set()
    for seed in ("1", "2", "3"):
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


def test_a_trained_tokenizer_is_bert() -> None:
    tokenizer = train(TEXTS, 300)
    assert [tokenizer.id_to_token(number) for number in range(5)] == [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    assert len(tokenizer.get_added_tokens_decoder()) == 5
    assert tokenizer.get_vocab_size() <= 300
    pair = tokenizer.encode("Quick FOX", "的")
    assert pair.tokens[0] == "[CLS]"
    assert pair.tokens[-2:] == ["的", "[SEP]"]
    assert pair.type_ids == [0] * (len(pair.ids) - 2) + [1, 1]
    assert tokenizer.decode(tokenizer.encode("the quick foxes").ids) == "the quick foxes"
    assert tokenizer.encode("FOX").ids == tokenizer.encode("fox").ids
    assert "[UNK]" not in tokenizer.encode(TEXTS[1]).tokens


def test_a_cased_tokenizer_tells_case() -> None:
    tokenizer = train(["Fox fox FOX Äpfel"] * 5, 100, lowercase=False)
    assert len({tuple(tokenizer.encode(word).ids) for word in ("Fox", "fox", "FOX")}) == 3


def test_frequent_characters_win_a_small_vocabulary() -> None:
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 500)))
    tokenizer = train(["的一是不" * 100, rare], 100)
    assert tokenizer.get_vocab_size() <= 100
    assert tokenizer.encode("的一是不", add_special_tokens=False).tokens == list("的一是不")


@pytest.mark.parametrize(("texts", "size", "message"), [(["a"], 10, "too small"), ([], 100, "are empty")])
def test_impossible_training(texts: list[str], size: int, message: str) -> None:
    with pytest.raises(BrimfulError, match=message):
        train(texts, size)


def test_transformers_reads_what_is_saved(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = train(TEXTS, 300)
    save(tokenizer, tmp_path, model_max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 128
    assert len(theirs) == tokenizer.get_vocab_size()
    ids = special_ids(tokenizer)
    assert (theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id) == (ids.pad, ids.unk, ids.mask)
    assert (theirs.cls_token_id, theirs.sep_token_id) == (ids.cls, ids.sep)
    for text in TEXTS[:3]:
        assert theirs(text)["input_ids"] == tokenizer.encode(text).ids
    pair = theirs("quick", "fox")
    assert pair["token_type_ids"] == tokenizer.encode("quick", "fox").type_ids
    assert (
        theirs.decode(theirs("the quick foxes")["input_ids"], skip_special_tokens=True) == "the quick foxes"
    )


def test_save_and_load(tmp_path: Path) -> None:
    tokenizer = train(TEXTS, 300)
    save(tokenizer, tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert tokenizer_hash(load(path)) == tokenizer_hash(tokenizer)


def test_padding_and_truncation_are_switched_off(tmp_path: Path) -> None:
    tokenizer = train(TEXTS, 300)
    plain = tokenizer_hash(tokenizer)
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(4)
    save(tokenizer, tmp_path)
    assert tokenizer_hash(load(tmp_path)) == plain


def test_vocab_txt(tmp_path: Path) -> None:
    tokenizer = train(TEXTS, 300)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    loaded = load(tmp_path)
    for text in TEXTS[:3]:
        assert loaded.encode(text).ids == tokenizer.encode(text).ids
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load(tmp_path / "vocab.txt").encode("FOX").tokens != loaded.encode("FOX").tokens
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\n")
    with pytest.raises(BrimfulError, match=r"lacks \[CLS\], \[SEP\], \[MASK\]"):
        load(tmp_path)


def test_special_tokens_of_roberta_and_missing_ones(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<mask>"])
    ids = special_ids(tokenizer)
    assert (ids.cls, ids.pad, ids.sep, ids.mask, ids.unk) == (0, 1, 2, 3, None)
    bare = Tokenizer(models.BPE())
    bare.add_special_tokens(["<s>", "<pad>", "</s>"])
    with pytest.raises(BrimfulError, match=r"no mask token \(looked for \[MASK\], <mask>\)"):
        special_ids(bare)


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=r"no tokenizer in .*looked for tokenizer.json and vocab.txt"):
        load(tmp_path)
    with pytest.raises(BrimfulError, match="no tokenizer at"):
        load(tmp_path / "absent.json")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": "?"}))
    with pytest.raises(BrimfulError, match="not a tokenizer"):
        load(tmp_path)
