"""A checkpoint that TensorFlow wrote is read to the bit; damaged ones are refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hf.test_families import refuse

from brimful.hf.folders import load_pretrained
from brimful.hf.tensor_names import to_hf
from brimful.model.heads import PretrainingHead

SMALL = Path(__file__).with_name("tensorflow_checkpoint")
"""Written by TensorFlow 2.21 with write_tensorflow_checkpoint.py. Tensor n of names.json has the values n,
n + 1/64, n + 2/64 ...; besides, there are a step and a moment of Adam."""


def their_name(name: str) -> str:
    """A name of transformers, as google-research/bert has it."""
    name = name.replace("layer.", "layer_").replace(".", "/")
    name = name.replace("LayerNorm/weight", "LayerNorm/gamma").replace("LayerNorm/bias", "LayerNorm/beta")
    name = name.replace("_embeddings/weight", "_embeddings")
    name = name.replace("cls/predictions/bias", "cls/predictions/output_bias")
    name = name.replace("seq_relationship/weight", "seq_relationship/output_weights")
    name = name.replace("seq_relationship/bias", "seq_relationship/output_bias")
    return name.removesuffix("/weight") + "/kernel" if name.endswith("/weight") else name


def test_every_tensor_has_its_values():
    encoder, head = load_pretrained(SMALL)
    assert isinstance(head, PretrainingHead)
    ours = {f"bert.{name}": tensor for name, tensor in to_hf(encoder, encoder.config).items()}
    ours |= to_hf(head, encoder.config)
    by_their_name = {their_name(name): tensor for name, tensor in ours.items()}
    names = json.loads((SMALL / "names.json").read_text())
    assert by_their_name.keys() >= set(names)
    for number, name in enumerate(names):
        tensor = by_their_name[name]
        values = (tensor.T if name.endswith("/kernel") else tensor).flatten()
        assert torch.equal(values, number + torch.arange(len(values)) / 64), name


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "b.index").write_bytes(b""), r"several checkpoints \(b.index, bert_model"),
        (lambda folder: cut(folder / "bert_model.ckpt.index"), "bert_model.ckpt.index is damaged"),
        (lambda folder: cut(folder / "bert_model.ckpt.data-00000-of-00001"), "lacks bytes of the tensor"),
        (lambda folder: (folder / "bert_model.ckpt.data-00000-of-00001").unlink(), "has 0 of 1 files"),
    ],
    ids=["two", "index", "data", "no data"],
)
def test_damage_is_refused(tmp_path, damage, words):
    folder = shutil.copytree(SMALL, tmp_path / "model")
    damage(folder)
    refuse(folder, words)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-24])
