"""Tokens in a text: those that a folder adds are found, and its markers are not. Shards, vectors and exports
agree."""

import json
from pathlib import Path

import numpy as np
import pytest

from brimful import Encoder, export, prepare
from brimful.corpus.shards import Corpus
from brimful.corpus.text.tokenizer import load
from builders.encoders import small

LINES = [
    "took the [DRUG] in paris [SEP] good",
    "很好 [MASK] 很好 [SEP] 好",
    "a [UNK] b </s> c <pad> d <unk> e <mask> f",
    "the [drug]s and [CLS][GENE]the",
]


def test_shards_vectors_and_exports_have_the_same_ids(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    small("bert", vocabulary_size=100).save(folder)
    letters = "abcdefghijklmnopqrstuvwxyz[]<>/很好"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", *letters, *(f"##{c}" for c in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    settings = {"do_lower_case": True, "additional_special_tokens": ["[DRUG]", "[GENE]"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    given = Encoder.load(folder)
    expected = [given.tokenizer.encode(line, add_special_tokens=False).ids for line in LINES]
    added = given.tokenizer.token_to_id("[DRUG]")
    assert added in expected[0]

    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    # `</s>` in a field is the end tag of an element of HTML, too.
    clean = {"html": "never"}
    options = {"tokenizer": str(folder), "validation_share": 0.0, "workers": 1, "clean": clean}
    prepare(paths=[str(tmp_path / "texts.jsonl")], out=str(tmp_path / "corpus"), **options)
    corpus = Corpus.open(tmp_path / "corpus")
    found = [part.tolist() for s in corpus.shards for part in np.split(s.tokens, s.offsets[1:-1])]
    assert sorted(found) == sorted(expected)
    assert load(tmp_path / "corpus").encode(LINES[0]).ids == given.tokenizer.encode(LINES[0]).ids

    export(run=str(folder), out=str(tmp_path / "export"))
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "export"))
    for line in LINES:
        assert theirs(line)["input_ids"] == given.tokenizer.encode(line).ids
    assert np.array_equal(Encoder.load(tmp_path / "export").embed(LINES), given.embed(LINES))
