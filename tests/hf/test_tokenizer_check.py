"""The comparison of a written folder's ids with AutoTokenizer's, which export makes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from brimful.base.errors import BrimfulError
from brimful.corpus.text.tokenizer import load, save
from brimful.hf.tokenizer_check import check_ids, sample_texts

pytest.importorskip("transformers")

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,'-()[]/:=_<>?!$%*"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]


@pytest.fixture
def source(tmp_path):
    """A BERT's tokenizer with an added token."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", "utf-8")
    write(folder / "config.json", {"model_type": "bert"})
    write(folder / "tokenizer_config.json", {"do_lower_case": True, "extra_special_tokens": ["[DRUG]"]})
    return folder


@pytest.fixture
def written(source, tmp_path):
    folder = tmp_path / "written"
    folder.mkdir()
    save(load(source), folder, model_max_length=20)
    return folder


def write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values), "utf-8")


def test_texts_are_of_all_kinds_and_spell_markers_and_added_tokens(written):
    plain, spelled = sample_texts(load(written))
    assert len(plain) > 40
    assert any("[DRUG]" in text for text in plain)
    assert all(any(name in text for text in spelled) for name in PIECES[:5])
    assert not any(name.lower() in text.lower() for text in plain for name in PIECES[:5])


def test_other_ids_than_the_source_has_fail_with_an_example(source, written):
    check_ids(source, written, 20)
    write(source / "tokenizer_config.json", {"do_lower_case": False, "extra_special_tokens": ["[DRUG]"]})
    with pytest.raises(BrimfulError, match=r"the ids of 'The quick.* differ .*source at token 1"):
        check_ids(source, written, 20)
    check_ids(source, written, 20, whole=False)


def test_a_folder_that_transformers_cuts_elsewhere_fails(source, written):
    with pytest.raises(BrimfulError, match=r"the ids of '0 1 2.*written, which cuts it at token 18"):
        check_ids(source, written, 19)


@pytest.mark.parametrize("length", ["", [], {"x": 1}])
def test_a_source_whose_tokenizer_fails_at_a_text_is_not_compared(source, written, capsys, length):
    write(source / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": length})
    check_ids(source, written, 20)
    assert f"{source}: transformers cannot use the tokenizer" in capsys.readouterr().err


def test_a_folder_whose_markers_transformers_finds_fails(source, written):
    config = json.loads((written / "tokenizer_config.json").read_text())
    config |= {"split_special_tokens": False, "later": 1}
    write(written / "tokenizer_config.json", config)
    with pytest.raises(BrimfulError, match=r"the ids of '.*' differ from those of AutoTokenizer of written"):
        check_ids(source, written, 20)


def test_texts_are_lowered_where_sentence_transformers_does(source, tmp_path):
    (source / "tokenizer_config.json").unlink()
    cased = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    cased.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    write(source / "tokenizer_config.json", {"do_lower_case": False})
    write(source / "sentence_bert_config.json", {"do_lower_case": True})
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (source / "modules.json").write_text(json.dumps([module]))
    lowered = tmp_path / "lowered"
    lowered.mkdir()
    save(load(source), lowered)
    check_ids(source, lowered, 512)
    assert load(lowered).encode("ABC").ids == load(lowered).encode("abc").ids
