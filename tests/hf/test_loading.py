"""Every family in every form of folder has the hidden states of transformers; damage is refused."""

import json
import os
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from hf.test_families import FAMILIES, check_numbers, refuse, their_config
from safetensors.torch import load_file, save_file

from brimful import Encoder
from brimful.base.errors import NotFiniteError
from brimful.commands.export import list_unread_modules
from brimful.hf.folders import load_model, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.weights import naming_weights, weight_files
from brimful.model.heads import MaskedLMHead, SequenceHead
from brimful.runs.inputs import model_files
from builders.encoders import small

FORMS = ["safetensors", "sharded", "bin", "sharded bin", "old bin"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##b", "##c"]


def their_model(family: str, kind=transformers.AutoModel, **options):
    if family == "electra":
        options.setdefault("embedding_size", 24)
    return kind.from_config(their_config(family, **options)).eval()


def in_form(folder: Path, form: str) -> None:
    """Write the weights of a folder in another form."""
    path = folder / "model.safetensors"
    if form == "safetensors":
        return
    tensors = load_file(path)
    path.unlink()
    suffix = "bin" if form.endswith("bin") else "safetensors"
    stem = "pytorch_model" if suffix == "bin" else "model"

    def write(name: str, some: dict[str, torch.Tensor]) -> None:
        if suffix == "bin":
            torch.save(some, folder / name, _use_new_zipfile_serialization=form != "old bin")
        else:
            save_file(some, folder / name, metadata={"format": "pt"})

    if not form.startswith("sharded"):
        write(f"{stem}.{suffix}", tensors)
        return
    names = sorted(tensors)
    shards = [f"{stem}-0000{n}-of-00003.{suffix}" for n in (1, 2, 3)]
    places = {name: shards[index % 3] for index, name in enumerate(names)}
    for shard in shards:
        write(shard, {name: tensors[name] for name in names if places[name] == shard})
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("form", FORMS[1:])  # the first is that of test_families
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_every_form_equals_transformers(tmp_path, family, form):
    model = their_model(family)
    model.save_pretrained(tmp_path)
    in_form(tmp_path, form)
    check_numbers(tmp_path, model, "Model")
    assert {path.name for path in weight_files(tmp_path)} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_become_float32(tmp_path, form, dtype):
    encoder = small("bert")
    encoder.to(dtype).save(tmp_path)
    in_form(tmp_path, form)
    loaded = Encoder.load(tmp_path)
    assert loaded.embedding.weight.dtype == torch.float32
    assert torch.equal(loaded.word_embeddings, encoder.word_embeddings.float())


def test_an_electra_discriminator_has_no_head_and_a_generator_has(tmp_path):
    their_model("electra", transformers.AutoModelForPreTraining).save_pretrained(tmp_path / "one")
    their_model("electra", transformers.AutoModelForMaskedLM).save_pretrained(tmp_path / "other")
    encoder, head, _ = load_model(tmp_path / "one")
    assert head is None
    assert (encoder.config.variant, encoder.config.embedding_size) == ("electra", 24)
    discriminator = ["discriminator_predictions.dense", "discriminator_predictions.dense_prediction"]
    assert list_unread_modules(ModelFolder(tmp_path / "one"), encoder, head) == discriminator
    encoder, head, _ = load_model(tmp_path / "other")
    assert type(head) is MaskedLMHead
    assert list_unread_modules(ModelFolder(tmp_path / "other"), encoder, head) == []


def test_an_electra_as_wide_as_its_embeddings_has_no_projection(tmp_path):
    their_model("electra", embedding_size=32).save_pretrained(tmp_path)
    encoder = Encoder.load(tmp_path)
    assert encoder.config.embedding_size is None
    assert isinstance(encoder.embedding_projection, torch.nn.Identity)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "modernbert"])
def test_a_masked_lm_head_is_there_if_its_tensors_are(tmp_path, family):
    """Whatever the name of the class: some folders have no name, others that of a class without its head."""
    their_model(family, transformers.AutoModelForMaskedLM).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    name = values.pop("architectures")
    path.write_text(json.dumps(values))
    assert type(load_model(tmp_path)[1]) is MaskedLMHead
    encoder = Encoder.load(tmp_path)
    encoder.save(tmp_path / "bare")
    written = json.loads((tmp_path / "bare/config.json").read_text())
    (tmp_path / "bare/config.json").write_text(json.dumps(written | {"architectures": name}))
    assert load_model(tmp_path / "bare")[1] is None


def test_a_vocab_txt_does_for_a_tokenizer_here_too(tmp_path):
    their_model("bert").save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    assert Encoder.load(tmp_path).tokenizer.encode("ABC").tokens == ["[CLS]", "a", "##b", "##c", "[SEP]"]
    assert [name for name in model_files("e", ModelFolder(tmp_path)) if "vocab" in name] == ["e/vocab.txt"]
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS + [f"w{n}" for n in range(60)]), encoding="utf-8")
    refuse(tmp_path, r"vocab\.txt is not this model's")


def test_a_vocab_json_with_its_merges_does_too(tmp_path):
    their_model("roberta").save_pretrained(tmp_path)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "Ġ", "ab", "Ġa"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ a\n", encoding="utf-8")
    assert len(Encoder.load(tmp_path).encode(["ab"])[0]) == 3
    assert {"e/vocab.json", "e/merges.txt"} <= model_files("e", ModelFolder(tmp_path)).keys()


class Malicious:
    """A pickle of it runs a command when it is opened without restrictions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["archive", "old", "protocol 4"])
def test_a_pickle_that_needs_more_than_tensors_is_refused(tmp_path, form):
    """And without torch's advice to trust it."""
    small("bert").save(tmp_path / "model")
    in_form(tmp_path / "model", "bin")
    path = tmp_path / "model" / "pytorch_model.bin"
    values = torch.load(path, weights_only=True) | {"x": Malicious(tmp_path / "ran")}
    needle = r"needs more than tensors \(posix\.mkdir\) and is refused"
    if form == "protocol 4":
        path.write_bytes(pickle.dumps({"x": values["x"]}, protocol=4))
        needle = r"is damaged, or holds more than tensors \(Unsupported operand"
    else:
        torch.save(values, path, _use_new_zipfile_serialization=form == "archive")
    refuse(tmp_path / "model", needle)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_was_cut_short_is_refused(tmp_path, form):
    small("bert").save(tmp_path)
    in_form(tmp_path, form)
    path = weight_files(tmp_path)[-1]
    whole = path.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:size])
        refuse(tmp_path, f"{path.name} is damaged")


def test_what_is_missing_or_no_weights_is_named(tmp_path):
    small("bert").save(tmp_path)
    in_form(tmp_path, "sharded")
    refused = partial(refuse, tmp_path)
    shard = tmp_path / "model-00002-of-00003.safetensors"
    shard.rename(tmp_path / "away")
    refused(r"lacks model-00002-of-00003\.safetensors, which model\.safetensors\.index\.json names")
    (tmp_path / "away").rename(shard)
    index = tmp_path / "model.safetensors.index.json"
    for damaged in ('{"weight_map": {"x": "../x"}}', '{"weight_map": {}}', "[]", '{"weight_map": 3}'):
        index.write_text(damaged)
        refused("does not say which files")
    index.unlink()
    refused("has no weights")
    torch.save([torch.ones(2)], tmp_path / "pytorch_model.bin")
    refused("holds no tensors by name")
    elsewhere = {"sparse": torch.ones(2).to_sparse(), "meta": torch.ones(2, device="meta")}
    torch.save(elsewhere, tmp_path / "pytorch_model.bin")
    refused("holds no tensors by name")
    torch.save({"x": torch.ones(2, dtype=torch.int64)}, tmp_path / "pytorch_model.bin")
    refused(r"pytorch_model\.bin holds no weights in floating point")
    for tensors in ({}, {"x": torch.ones(2, dtype=torch.int64)}):
        save_file(tensors, tmp_path / "model.safetensors")
        refused(r"model\.safetensors holds no weights in floating point")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    refused("git lfs pull")


def test_a_shard_with_wrong_numbers_is_named(tmp_path):
    small("bert").save(tmp_path)
    in_form(tmp_path, "sharded")
    shard = tmp_path / "model-00002-of-00003.safetensors"
    tensors = load_file(shard)
    name = min(tensors)
    save_file(tensors | {name: torch.full_like(tensors[name], torch.nan)}, shard)
    said = rf"{shard.name}: the tensor {name} holds NaN"
    with pytest.raises(NotFiniteError, match=said), naming_weights(ModelFolder(tmp_path)):
        raise NotFiniteError("outputs")
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, shard)
    refuse(tmp_path, f"{shard.name} has weights in torch.float8_e4m3fn")
    with pytest.raises(NotFiniteError, match="outputs"), naming_weights(ModelFolder(tmp_path)):
        raise NotFiniteError("outputs")


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_a_file_whose_bytes_cannot_be_read_is_named(tmp_path, form):
    """It opens, and then the disk fails."""
    small("bert").save(tmp_path)
    in_form(tmp_path, form)
    path = weight_files(tmp_path)[0]
    path.unlink()
    path.symlink_to("/proc/self/mem")
    refuse(tmp_path, f"cannot read .*{path.name}: Input/output error")


def test_loading_and_copying_draw_no_random_numbers(tmp_path):
    for name in ("bert", "modern", "electra"):
        encoder = small(name)
        for head in (MaskedLMHead(encoder), SequenceHead(encoder, 3)):
            save_model(tmp_path / name, encoder, head)
            state = torch.get_rng_state()
            load_model(tmp_path / name)
            student = Encoder.load(tmp_path / name).keep_layers([1, 0])
            assert torch.equal(torch.get_rng_state(), state)
            assert all(parameter.isfinite().all() for parameter in student.parameters())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says which memory is no file's")
def test_a_model_takes_its_size_in_memory_once(tmp_path):
    """In a process of its own, since memory that was freed is used again. Pages of files do not count."""
    import subprocess
    import sys

    encoder = small("bert", vocabulary_size=120_000, hidden_size=96)
    size = sum(parameter.nbytes for parameter in encoder.parameters())
    encoder.save(tmp_path / "large")
    small("bert", hidden_size=96).save(tmp_path / "small")
    del encoder
    code = f"""
import re
from pathlib import Path
from brimful import Encoder
taken = lambda: 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
Encoder.load({str(tmp_path / "small")!r})
before = taken()
encoder = Encoder.load({str(tmp_path / "large")!r})
print(taken() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert size < 50_000_000
    assert int(done.stdout) < 1.25 * size


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    encoder = small("bert")
    encoder.save(tmp_path / "model")
    place = os.fsencode(tmp_path) + b"/" + "模型".encode("gbk")
    os.rename(tmp_path / "model", place)
    refuse(Path(os.fsdecode(place)), "a name that is not UTF-8: rename it")
