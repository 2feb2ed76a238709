"""Tokens in a text: those that a folder adds are found, and its markers are not. Shards, vectors and exports
agree."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from brimful import Encoder, prepare
from brimful.commands.export import export
from brimful.corpus.shards import Corpus
from brimful.corpus.text.tokenizer import load
from builders.encoders import small

LINES = [
    "took the [DRUG] in paris [SEP] good",
    "很好 [MASK] 很好 [SEP] 好",
    "a [UNK] b </s> c <pad> d <unk> e <mask> f",
    "the [drug]s and [CLS][GENE]the",
]


def bert(folder: Path) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz[]<>/很好"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", *letters, *(f"##{c}" for c in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    settings = {"do_lower_case": True, "additional_special_tokens": ["[DRUG]", "[GENE]"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def xlm_roberta(folder: Path) -> None:
    special, letters = ["<s>", "<pad>", "</s>", "<unk>"], "abcdefghijklmnopqrstuvwxyz[]<>/很好SEPMAKCLGNDRU"
    pieces = [*((piece, 0.0) for piece in special), ("▁", -1.0), *((c, -2.0) for c in letters)]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3))
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens([*special, "<mask>", "[DRUG]"])
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.cases(1)
@pytest.mark.parametrize(("kind", "write"), [("bert", bert), ("roberta", xlm_roberta)])
def test_shards_vectors_and_exports_have_the_same_ids(tmp_path: Path, kind: str, write) -> None:
    folder = tmp_path / "model"
    encoder = small(kind, vocabulary_size=100)
    encoder.save(folder)
    write(folder)
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
