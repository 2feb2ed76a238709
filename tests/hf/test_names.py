"""Tensors under the names that older versions and tying leave give the numbers of transformers."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from hf.test_families import FAMILIES, FOLDERS, KINDS, ROBERTAS, check_numbers, refuse, their_config
from safetensors.torch import load_file, save_file

from brimful.base.console import record_warnings
from brimful.hf.folders import load_model

Tensors = dict[str, torch.Tensor]


def of_tensorflow(tensors: Tensors) -> Tensors:
    named = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        named[name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    return named


def with_buffers(tensors: Tensors) -> Tensors:
    first = next(iter(tensors))
    prefix = first.partition("embeddings.")[0] if "embeddings." in first else ""
    return {f"{prefix}embeddings.position_ids": torch.arange(128)[None]} | tensors


def states(folder: Path) -> Tensors:
    encoder, head, _ = load_model(folder)
    return encoder.state_dict() | {f"head.{k}": v for k, v in (head.state_dict() if head else {}).items()}


def rewrite(folder: Path, rename: Callable[[Tensors], Tensors]) -> None:
    path = folder / "model.safetensors"
    save_file({name: t.clone() for name, t in rename(load_file(path)).items()}, path)


def check_equal(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.cases(14)
@pytest.mark.parametrize(("family", "kind"), FOLDERS)
def test_names_that_old_versions_leave(tmp_path, family, kind):
    model = KINDS[kind].from_config(their_config(family)).eval()
    model.save_pretrained(tmp_path)
    expected = states(tmp_path)
    plain = (tmp_path / "model.safetensors").read_bytes()
    for rename in (with_buffers, of_tensorflow):
        (tmp_path / "model.safetensors").write_bytes(plain)
        rewrite(tmp_path, rename)
        check_equal(states(tmp_path), expected)
    check_numbers(tmp_path, model, kind)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_of_the_matrix_and_the_bias_alone(tmp_path, family):
    model = KINDS["ForMaskedLM"].from_config(their_config(family)).eval()
    torch.nn.init.normal_(model.get_output_embeddings().bias)
    tensors = {name: t.clone() for name, t in model.state_dict().items() if t.is_floating_point()}
    model.save_pretrained(tmp_path)
    expected = states(tmp_path)
    groups: dict[int, list[str]] = {}
    for name in tensors:
        groups.setdefault(model.state_dict()[name].data_ptr(), []).append(name)
    twins = [name for names in groups.values() if len(names) > 1 for name in names]
    assert len(twins) == (2 if family in ("electra", "modernbert") else 4)
    for twin in twins:
        save_file({k: v for k, v in tensors.items() if k != twin}, tmp_path / "model.safetensors")
        check_equal(states(tmp_path), expected)
    save_file(tensors, tmp_path / "model.safetensors")  # as a .bin of an older version has them
    check_equal(states(tmp_path), expected)


@pytest.mark.parametrize("family", ["bert", *ROBERTAS, "megatron-bert"])
def test_of_two_biases_the_decoders_counts_as_in_transformers(tmp_path, family):
    model = KINDS["ForMaskedLM"].from_config(their_config(family))
    model.save_pretrained(tmp_path)
    decoder = (
        "cls.predictions.decoder.bias" if family in ("bert", "megatron-bert") else "lm_head.decoder.bias"
    )
    rewrite(tmp_path, lambda tensors: tensors | {decoder: torch.randn(70)})
    check_numbers(tmp_path, transformers.AutoModelForMaskedLM.from_pretrained(tmp_path), "ForMaskedLM")


def test_what_is_missing_or_twice_has_its_cause(tmp_path):
    KINDS["ForMaskedLM"].from_config(their_config("bert")).save_pretrained(tmp_path)
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    tensors, values = load_file(path), json.loads(config.read_text())

    refused = partial(refuse, tmp_path, load=load_model)

    def write(some: Tensors, **changes: object) -> None:
        save_file({name: tensor.clone() for name, tensor in some.items()}, path)
        config.write_text(json.dumps(values | changes))

    write({name: t for name, t in tensors.items() if "layer.2." not in name})
    refused(r"lacks the tensor bert\.encoder\.layer\.2\.attention\S+ and 15 more")
    write({name: t for name, t in tensors.items() if "layer.1.output" not in name})
    refused(r"lacks the tensor bert\.encoder\.layer\.1\.output\.LayerNorm\.bias and 3 more")
    write({f"module.{name}": tensor for name, tensor in tensors.items()})
    refused(r"lacks the tensor .*; its first is module\.bert\..* has the names of a wrapper")
    torch.save({"epoch": 3, "state_dict": tensors}, tmp_path / "pytorch_model.bin")
    path.unlink()
    refused(r"pytorch_model\.bin holds no tensors by name: .* by its save_pretrained")
    (tmp_path / "pytorch_model.bin").unlink()
    write(tensors | {"bert.encoder.layer.0.attention.self.query.lora_A.default.weight": torch.ones(2, 32)})
    refused("has an adapter beside its weights.*merge_and_unload")
    write({"gpt.wte.weight": torch.ones(2, 2)})
    refused(r"lacks the tensor .*; its first is gpt\.wte\.weight")
    words = "bert.embeddings.word_embeddings.weight"
    rest = {name: t for name, t in tensors.items() if name != words}
    write(rest)
    refused(f"lacks the tensor {words}")
    write(rest | {"cls.predictions.decoder.weight": tensors[words]}, tie_word_embeddings=False)
    refused(r"another \(tie_word_embeddings\)")
    write(tensors, num_hidden_layers=2)
    with record_warnings() as said:
        load_model(tmp_path)
    assert any("has more layers than the 2 of config.json: the others are left out" in text for text in said)
