"""The tokenizer of a folder: AutoTokenizer's ids whatever file has a setting; markers in a text stay text."""

import json
import re
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from brimful.base.console import print_messages
from brimful.base.errors import BrimfulError
from brimful.corpus.fragments.fast_tokenizer import FastTokenizer
from brimful.corpus.text.auto_tokenizer import open_auto_tokenizer
from brimful.corpus.text.characters import code_points
from brimful.corpus.text.special_ids import (
    marker_names,
    settings_of,
    special_ids,
    truncation_side,
    unknown_id,
)
from brimful.corpus.text.tokenizer import load, lower_first, read, require_rows, save, tokenizer_hash
from builders.tokenizer_folders import BERT_NAMES, ROBERTA_NAMES, random_folder, random_text

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
PIECES = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "the", "The", "good", "paris", "Paris")]
PIECES += ["drug", "took", "in", "muller", "d", "r", "u", "g", "##s", "##x"]


def folder_of(path: Path, pieces: list[str] = PIECES, **files: Any) -> Path:
    """A BERT's folder with a vocab.txt and JSON files, `_` in a name for the full stop before json."""
    path.mkdir(exist_ok=True)
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    for name, values in {"config": {"model_type": "bert"}, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(values), "utf-8")
    return path


def auto(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def warnings(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join("".join(capsys.readouterr()).split())


@given(st.integers(0, 2**64))
def test_random_folders_have_the_ids_of_autotokenizer(tmp_path_factory, seed: int) -> None:
    rng = Random(seed)
    folder = tmp_path_factory.mktemp("folder")
    names = random_folder(rng, folder)
    texts = [random_text(rng, names) for _ in range(12)]
    try:
        theirs = auto(folder)
    except Exception:
        theirs = None  # such a folder may be read or refused
    else:
        vocabulary = getattr(theirs, "_vocab", "")
        if not isinstance(vocabulary, str) and 0 < len(vocabulary) <= 6:
            theirs = None  # it lacks a file, and transformers makes up a vocabulary
    try:
        ours = read(folder)
    except BrimfulError as error:
        if theirs is None or "its token for unknown words" in str(error):
            return
        raise
    _check_markers_and_shards(folder, ours, texts, {*names, *BERT_NAMES.values(), *ROBERTA_NAMES.values()})
    if theirs is None:
        return
    named = {theirs.special_tokens_map[role] for role in ROLES if role in theirs.special_tokens_map}
    named |= marker_names(ours) | {*names}
    ids = {theirs.convert_tokens_to_ids(name) for name in named} - {unknown_id(ours)}
    # In memory `tokenizers` goes on to pass over a token that was special once; a file has no word for that.
    written = Tokenizer.from_str(theirs.backend_tokenizer.to_str())
    written.encode_special_tokens = theirs.split_special_tokens
    for first, second in zip(texts, [None, *texts], strict=False):
        both = (first, second or None)
        spelled = any(name.lower() in (text or "").lower() for name in named for text in both)
        try:
            found = theirs(*both, add_special_tokens=False)["input_ids"]
        except Exception:  # a BPE without some letter
            continue
        if not spelled and not ids & {*found}:
            expected = theirs(*both, return_token_type_ids=True)
            if written.encode(*both).ids != expected["input_ids"]:
                continue
            encoding = ours.encode(*both)
            assert encoding.ids == expected["input_ids"], both
            assert encoding.type_ids == expected["token_type_ids"], both


def _check_markers_and_shards(folder: Path, ours: Tokenizer, texts: list[str], names: set[str]) -> None:
    """No text gets a marker; encoded in pieces it gives the same; what is saved is read the same by all."""
    never = {ours.token_to_id(name) for name in marker_names(ours) & names} - {unknown_id(ours)}
    try:
        encodings = ours.encode_batch(texts, add_special_tokens=False)
    except Exception:  # a BPE without some letter
        return
    assert not any(never & {*encoding.ids} for encoding in encodings)
    ids, _, lengths = FastTokenizer(ours)(texts, code_points("\n".join(texts)))
    assert lengths.tolist() == [len(encoding) for encoding in encodings]
    assert ids.tolist() == [index for encoding in encodings for index in encoding.ids]
    try:
        special_ids(ours)
    except BrimfulError:
        return
    saved = folder / "saved"
    save(ours, saved)
    assert tokenizer_hash(load(saved)) == tokenizer_hash(ours)
    theirs = auto(saved)
    for text in texts:
        assert theirs(text)["input_ids"] == ours.encode(text).ids


def test_tokens_that_a_folder_adds_are_found(tmp_path: Path) -> None:
    token = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    new = {
        "tokenizer_class": "BertTokenizer",
        "added_tokens_decoder": {"22": {"content": "[DRUG]", **token}, "23": {"content": "[GENE]", **token}},
    }
    old = {"[DRUG]": 22, "[GENE]": 23}
    folders = {
        "new": folder_of(tmp_path / "new", tokenizer_config=new),
        "old": folder_of(
            tmp_path / "old",
            added_tokens=old,
            special_tokens_map={"additional_special_tokens": [*old]},
            tokenizer_config={"tokenizer_class": "BertTokenizer"},
        ),
    }
    for folder in folders.values():
        ours = load(folder)
        text = "took the [DRUG] in Paris [GENE]s, and the [drug]"
        assert ours.encode(text).ids == auto(folder)(text)["input_ids"]
        assert {22, 23} <= {*ours.encode(text).ids}
        require_rows(ours, 30, "here")
        with pytest.raises(BrimfulError, match=r"ids up to 23 \(\[(GENE|gene)\]\), and the model has 22"):
            require_rows(ours, 22, "here")


def test_a_tokenizer_that_puts_no_ends_around_texts_is_warned_of(tmp_path: Path, capsys) -> None:
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(PIECES[:5])
    folder = folder_of(tmp_path, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    tokenizer.save(str(folder / "tokenizer.json"))
    assert load(folder).encode("the").ids == auto(folder)("the")["input_ids"] == [7]
    assert "puts no [CLS] and [SEP] around texts" in warnings(capsys)
    assert not settings_of(read(folder)).token_types


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_the_pieces_of_unigram_spell_no_marker(tmp_path: Path, scheme: Any) -> None:
    pieces = [(marker, 0.0) for marker in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [("▁", -1.0), ("a", -1.0), ("s>", -2.0)]
    pieces += [(letter, -2.0) for letter in "<s>/padunkm"] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(list(dict(pieces).items()), unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load(tmp_path)
    texts = ["a <s> a", "<s>", "a<s>a</s><pad>", "<unk> a", "<<s>", "a <mask>", "s> a"]
    for text in texts:
        assert not {0, 1, 2, 3, loaded.token_to_id("<mask>")} & {*loaded.encode(text).ids}
    assert FastTokenizer(loaded)._cuts is not None  # such a text is still encoded in pieces
    save(loaded, tmp_path / "saved")
    assert all(auto(tmp_path / "saved")(text)["input_ids"] == loaded.encode(text).ids for text in texts)


def test_sentence_transformers_lowers_before_the_tokenizer(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path / "given",
        modules=[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}],
        sentence_bert_config={"do_lower_case": True},
        tokenizer_config={"do_lower_case": False, "additional_special_tokens": ["[DRUG]", "[gene]"]},
    )
    loaded, theirs = load(folder), auto(folder)
    for text in ("Paris took THE drug", "[DRUG] [GENE] [gene]", "ΌΔΟΣ Σ"):
        assert loaded.encode(text).ids == theirs(text.lower())["input_ids"]
    save(loaded, tmp_path / "saved")
    assert auto(tmp_path / "saved")("Paris")["input_ids"] == loaded.encode("paris").ids
    assert tokenizer_hash(load(tmp_path / "saved")) == tokenizer_hash(loaded)
    for name in ("modules.json", "sentence_bert_config.json"):  # beside a tokenizer of ours that lowers
        (tmp_path / "saved" / name).write_bytes((folder / name).read_bytes())
    assert tokenizer_hash(load(tmp_path / "saved")) == tokenizer_hash(loaded)
    (folder / "modules.json").unlink()
    cased = load(folder)
    assert cased.encode("Paris").tokens[1] == "Paris"
    save(cased, tmp_path / "cased")  # and beside one that does not
    for name in ("modules.json", "sentence_bert_config.json"):
        (tmp_path / "cased" / name).write_bytes((tmp_path / "saved" / name).read_bytes())
    assert load(tmp_path / "cased").encode("Paris").ids == loaded.encode("Paris").ids


LOWERED, _ = lower_first(Tokenizer(models.WordLevel({"?": 0}, unk_token="?")))


@given(
    st.text(st.sampled_from("aΣΑΣς'.\u0308\u0345ͺ ǅİB中1-\u00ad"))
    | st.text(st.characters(max_codepoint=0x1FFF))
)
def test_lowering_is_that_of_python(text: str) -> None:
    known = "".join(c for c in text if c != "\u1c89")  # new in Unicode 16
    # A lookbehind has a limit: a sigma is final after three marks or points at most.
    known = re.sub("([:'.\u0308\u0345ͺ\u00ad]{3})[:'.\u0308\u0345ͺ\u00ad]+", r"\1", known)
    assert LOWERED.normalizer.normalize_str(known) == known.lower()


def test_corpora_of_older_versions_keep_their_tokenizer(tmp_path: Path) -> None:
    """Their shards have every special token as plain text; so has the tokenizer, whose hash they know."""
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([*PIECES[:5], "[DRUG]"])
    save(tokenizer, tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["split_special_tokens"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    drug = tokenizer.token_to_id("[DRUG]")
    assert drug in load(tmp_path).encode("[DRUG]").ids  # a model's folder
    (tmp_path / "plan.json").write_text("{}")
    assert tokenizer_hash(load(tmp_path)) == tokenizer_hash(tokenizer)
    assert drug not in load(tmp_path).encode("[DRUG]").ids


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": {"added_tokens_decoder": ["x"]}}, "AutoTokenizer cannot read"),
        ({"tokenizer_config": {"tokenizer_class": "T5Tokenizer"}}, "T5Tokenizer and lacks its spiece.model"),
        ({"tokenizer_config": {"auto_map": {"AutoTokenizer": ["x.Y", None]}}}, "auto_map"),
        ({"special_tokens_map": ["x"]}, r"special_tokens_map\.json"),
        ({"config": {"model_type": "roformer"}}, "RoFormerTokenizer, which is written in Python"),
        ({"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}}, r"needs a tokenizer\.json"),
        ({"tokenizer_config": {"auto_map": None}}, "auto_map of .* is null"),
        ({"vocab": {"a": 2**31}}, r"vocab\.json has ids up to 2,147,483,648"),
    ],
)
def test_refusals(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(BrimfulError, match=message):
        load(folder_of(tmp_path, **files))


def test_a_vocabulary_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "vocab.txt").write_bytes("the\nmüller".encode("latin-1"))
    with pytest.raises(BrimfulError, match=r"vocab\.txt is not UTF-8 \(byte 5\)"):
        load(folder)


def test_packages_that_do_not_match_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise ImportError("tokenizers>=0.30 is required\nmore")

    monkeypatch.setenv("BRIMFUL_CACHE", "off")
    monkeypatch.setattr("brimful.corpus.text.auto_tokenizer.open_auto_tokenizer", fails)
    with pytest.raises(BrimfulError, match=r"\(tokenizers>=0\.30 is required\).*--upgrade transformers"):
        load(folder_of(tmp_path))


def test_a_model_of_another_kind_than_its_class_is_warned_of(tmp_path: Path, capsys) -> None:
    folder = folder_of(tmp_path)
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(PIECES)}, []))
    tokenizer.save(str(folder / "tokenizer.json"))
    assert load(folder).encode("the").ids == auto(folder)("the")["input_ids"]
    assert "is a BPE model, and transformers reads it as BertTokenizer, a WordPiece model" in warnings(capsys)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("BRIMFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that transformers opens."""
    places: list[Path] = []

    def counted(folder: Path) -> Any:
        places.append(folder)
        return open_auto_tokenizer(folder)

    monkeypatch.setattr("brimful.corpus.text.auto_tokenizer.open_auto_tokenizer", counted)
    return places


def test_transformers_reads_a_folder_once(tmp_path: Path, cache: Path, opened: list[Path], capsys) -> None:
    folder = folder_of(tmp_path / "folder", tokenizer_config={"truncation_side": "left", "sep_token": "the"})
    first = load(folder)
    (tmp_path / "other").mkdir()
    for file in folder.iterdir():
        (tmp_path / "other" / file.name).write_bytes(file.read_bytes())
    again = load(tmp_path / "other")
    assert len(opened) == 1  # files of the same names and bytes
    assert tokenizer_hash(again) == tokenizer_hash(first)
    assert settings_of(again) == settings_of(first)
    assert truncation_side(again) == "left"
    assert again.id_to_token(special_ids(again).sep) == "the"
    warnings(capsys)
    with print_messages():
        load(folder)
    assert "2 of 22 pieces can never occur (The, Paris)" in warnings(capsys)  # a kept result warns again
    folder_of(folder, tokenizer_config={"do_lower_case": False})
    assert load(folder).encode("The").ids != first.encode("The").ids
    assert not warnings(capsys)
    assert len(opened) == 2
    for file in cache.glob("*/tokenizer.json"):
        file.write_text("{}")  # as a disk may lose it
    assert tokenizer_hash(load(tmp_path / "other")) == tokenizer_hash(first)
    assert len(opened) == 3


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "file").touch()
    folder = folder_of(tmp_path / "folder", tokenizer_config={"do_lower_case": False})
    for place in (str(tmp_path / "file"), "~no-such-user/x", "off"):
        monkeypatch.setenv("BRIMFUL_CACHE", place)
        assert load(folder).encode("the").ids == [2, 7, 3]
        assert ("BRIMFUL_CACHE" in warnings(capsys)) == (place != "off")
    assert len(opened) == 3


def test_without_transformers_what_brimful_writes_is_read_and_others_name_the_extra(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path / "bert", tokenizer_config={"additional_special_tokens": ["[DRUG]"]})
    loaded = load(folder)
    save(loaded, tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text('{"model_type": "bert"}')
    loaded.save(str(tmp_path / "bare.json"))
    cased = open_auto_tokenizer(folder_of(tmp_path / "cased", tokenizer_config={"do_lower_case": False}))
    with monkeypatch.context() as later:  # a newer transformers reads the same files otherwise
        place = "brimful.corpus.text.auto_tokenizer"
        later.setattr(f"{place}.version", {"tokenizers": version("tokenizers"), "transformers": "10.0"}.get)
        later.setattr(f"{place}.open_auto_tokenizer", lambda folder: cased)
        assert load(folder).encode("Paris").ids != loaded.encode("Paris").ids
    assert tokenizer_hash(load(folder)) == tokenizer_hash(loaded)
    monkeypatch.setattr("brimful.base.environment.find_spec", lambda name: None)
    assert load(folder).encode("Paris").ids != loaded.encode("Paris").ids  # the newest entry
    for file in cache.glob("*-10.0/tokenizer.json"):
        file.write_text("{}")  # as a disk may lose it
    for path in (folder, tmp_path / "saved", tmp_path / "bare.json"):
        assert tokenizer_hash(load(path)) == tokenizer_hash(loaded)
    monkeypatch.setenv("BRIMFUL_CACHE", "off")
    with pytest.raises(BrimfulError, match=r"needs transformers: pip install '\.\[hf\]' in the clone"):
        load(folder)
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    (tmp_path / "saved" / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": "[NEW]"}))
    with pytest.raises(BrimfulError, match="pip install"):  # the token would have to be added
        load(tmp_path / "saved")


def test_a_folder_as_that_of_modernbert_is_read_without_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files name tokens that tokenizer.json has, with the same flags."""
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(PIECES)}, []))
    tokenizer.add_special_tokens([*PIECES[:4], AddedToken("[MASK]", lstrip=True)])
    tokenizer.add_tokens([AddedToken("|||IP|||", normalized=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    tokens = {
        str(index): {"content": token.content, **flags, "normalized": not token.special}
        | {"special": token.special, "lstrip": token.lstrip}
        for index, token in tokenizer.get_added_tokens_decoder().items()
    }
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), PIECES, strict=False))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **roles, "mask_token": "[MASK]"}
    config |= {"added_tokens_decoder": tokens, "extra_special_tokens": {}}
    config["model_input_names"] = ["input_ids", "attention_mask"]
    mask = {"content": "[MASK]", **flags, "lstrip": True, "normalized": False}
    special = {**roles, "mask_token": mask}
    model = {"model_type": "modernbert"}
    folder_of(tmp_path, tokenizer_config=config, special_tokens_map=special, config=model)
    expected = auto(tmp_path)("[ |||IP||| ]")["input_ids"]
    monkeypatch.setattr("brimful.base.environment.find_spec", lambda name: None)
    loaded = load(tmp_path)
    assert loaded.encode("[ |||IP||| ]").ids == expected
    assert not settings_of(loaded).token_types
    tokens["22"]["rstrip"] = True
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(BrimfulError, match="pip install"):  # AutoTokenizer would add it anew
        load(tmp_path)


def test_a_sentencepiece_model_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brimful.corpus.text.auto_tokenizer.find_spec", lambda name: None)
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"\n\x0e")
    for path in (tmp_path, tmp_path / "sentencepiece.bpe.model"):
        with pytest.raises(BrimfulError, match=r"SentencePiece model.*pip install sentencepiece protobuf"):
            load(path)
