"""What an export takes over of the folder that it is made from, and what it leaves out."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.hf.config_json import FAMILIES, family_of
from brimful.hf.folders import named_tensors
from brimful.hf.model_folder import OVERLAP, PAIRS, SETTINGS, TEMPERATURE, ModelFolder
from brimful.hf.reading import reads_token_types
from brimful.hf.tensors import Head, decoder_weight, hf_names
from brimful.hf.weights import infinite_tensor
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead
from brimful.model.shape import EncoderConfig


def saved_settings(source: ModelFolder, config: EncoderConfig) -> dict[str, Any]:
    """The arguments of `save_model` that write the encoder and its head again as they were."""
    kept = (OVERLAP, TEMPERATURE, SETTINGS, PAIRS)
    return {
        "max_length": source.text_length(config),
        "problem_type": source.values.get("problem_type"),
        "token_types": reads_token_types(source, config),
        "extra": {key: source.values[key] for key in kept if key in source.values},
    }


def left_out(folder: ModelFolder, encoder: Encoder, head: Head | None) -> list[str]:
    """The modules of a folder that `load_model`, which gave encoder and head, does not read: poolers, heads,
    and the subfolders of modules of sentence-transformers. An encoder's have their names in the bare encoder.

    Raises:
        BrimfulError: the folder has no weights.
    """
    prefix = family_of(encoder.config).prefix
    known = {name for module in (encoder, head) if module for name in hf_names(module, encoder.config)}
    known |= {prefix + name for name in known}
    names = named_tensors(folder, encoder)[0].keys() - known
    decoder = decoder_weight(encoder.config).rpartition(".")[0]  # old folders have its bias twice
    modules = {name.rpartition(".")[0] for name in names} - {decoder}
    tensors = sorted(name.removeprefix(prefix) for name in modules)
    linear = isinstance(head, SequenceHead) and head.linear
    read = {"Transformer", *(["Dense"] if linear else [])} | ({"Pooling"} if encoder.pooling else set())
    return tensors + [path for kind, path in folder.modules if kind not in read]


def transformers_reads(folder: ModelFolder, encoder: Encoder) -> bool:
    """Whether `transformers` itself finds the encoder of a folder that `load_model` has read, or of that of
    its Transformer."""
    named = folder.config_file.name == "config.json" and folder.values.get("model_type") in FAMILIES
    return named and named_tensors(folder, encoder)[2]


@contextmanager
def naming_weights(folder: ModelFolder) -> Iterator[None]:
    """Let an error about a model's outputs that are not finite name its folder, and the tensor at fault.

    The weights are looked at only then: at each loading, it would take longer than all the rest.
    """
    try:
        yield
    except NotFiniteError as error:
        found = ""
        with suppress(BrimfulError):  # a static model has other weights
            found = infinite_tensor(folder.encoder_path)
        message = f"{found} holds NaN or infinite numbers: fetch the model again, or train it again"
        raise NotFiniteError(message if found else f"{folder}: {error}") from error
