"""config.json of a Hugging Face folder <-> our configuration, for the families of models in `FAMILIES`."""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from tokenizers import Tokenizer

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import special_ids
from brimful.hf.model_folder import ModelFolder
from brimful.model.shape import Architecture, EncoderConfig, Variant


@dataclass(frozen=True)
class Family:
    """Models of `transformers` that share a configuration class.

    Attributes:
        architecture: in our configuration.
        name: the beginning of the names of its classes.
        prefix: the beginning of the names of an encoder's tensors in a model with a head.
        variant: in our configuration.
        pad_id: the padding token, by default of config.json.
    """

    architecture: Architecture
    name: str
    prefix: str
    variant: Variant | None = None
    pad_id: int = 0


FAMILIES = {
    "bert": Family("bert", "Bert", "bert."),
    "roberta": Family("bert", "Roberta", "roberta.", "roberta", pad_id=1),
    "xlm-roberta": Family("bert", "XLMRoberta", "roberta.", "xlm-roberta", pad_id=1),
    "camembert": Family("bert", "Camembert", "roberta.", "camembert", pad_id=1),
    "electra": Family("bert", "Electra", "electra.", "electra"),
    "megatron-bert": Family("prenorm", "MegatronBert", "bert."),
    "modernbert": Family("modern", "ModernBert", "model."),
}
"""By the model_type of config.json."""
_MODEL_TYPES = {(family.architecture, family.variant): kind for kind, family in FAMILIES.items()}


def family_of(config: EncoderConfig) -> Family:
    """The family that an encoder is saved as."""
    return FAMILIES[_MODEL_TYPES[config.architecture, config.variant]]


# Keys with a single supported value.
_BERT = {
    "hidden_act": "gelu",
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}
_REQUIRED: dict[Architecture, dict[str, Any]] = {
    "bert": _BERT,
    "prenorm": _BERT,
    "modern": {
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
    },
}
_SHARED = {
    "vocabulary_size": "vocab_size",
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
}


_BERT_ALONE = {*_SHARED.values(), "max_position_embeddings", "type_vocab_size"}
"""Keys of every configuration of BERT, also of those that name no model_type."""
_OTHERS = {  # keys of models with the same sizes that are not BERT
    "embedding_size",
    "num_hidden_groups",
    "use_relative_position",
    "max_relative_position",
    "relative_attention",
    "rotary_value",
    "task_type_vocab_size",
    "intra_bottleneck_size",
    "local_attention",
}
Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Theta = Annotated[float, Meta(ge=1e-3, le=1e12)]
_MOST_ROTATED = 2**20  # positions whose angles are kept in memory


class _Numbers(Struct):
    """The numbers of a config.json, with the defaults of `transformers`."""

    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Annotated[int, Meta(ge=1, le=1000)]
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    pad_token_id: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    initializer_range: Annotated[float, Meta(ge=0, le=100)] = 0.02
    classifier_dropout: Rate = 0.0


class _BertNumbers(_Numbers):
    embedding_size: Size = 128
    type_vocab_size: Size = 2
    layer_norm_eps: Rate = 1e-12
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1


class _Rope(Struct):
    """Of a type of layer, since version 5; the names of a scaling, `type` in older ones."""

    rope_theta: Theta | None = None
    rope_type: str = "default"
    type: str = "default"


class _ModernNumbers(_Numbers):
    norm_eps: Rate = 1e-5
    mlp_dropout: Rate = 0.0
    embedding_dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    local_attention: Size = 128
    global_rope_theta: Theta = 160_000.0
    local_rope_theta: Theta | None = 10_000.0
    rope_parameters: dict[str, _Rope | None] = {}
    rope_scaling: Any = None
    layer_types: list[str] | None = None
    global_attn_every_n_layers: Size = 3


def _kind(values: dict[str, Any], where: str) -> str:
    """The model_type of a config.json, also of one that does not say it and can only be one."""
    kind = values.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES:
        return kind
    known = ", ".join(FAMILIES)
    if kind is not None:
        raise BrimfulError(f"{where}: model_type {kind!r:.60} is not supported; known: {known}")
    named = re.search(r'"Bert(Model|For|LM)', json.dumps(values.get("architectures") or "BertModel"))
    has_keys = values.keys() >= _BERT_ALONE and not values.keys() & _OTHERS
    if named and has_keys and values.get("type_vocab_size") != 1:
        return "bert"
    raise BrimfulError(f'{where} does not say what it describes: add "model_type", one of {known}')


def read_config(values: Any, where: str) -> EncoderConfig:
    """The shape of the encoder that a config.json describes.

    Args:
        values: its JSON.
        where: its path, for messages.

    Raises:
        BrimfulError: another type of model, a missing size, or a variant that is not supported.
    """
    if not isinstance(values, dict):
        raise BrimfulError(f"{where} is not a JSON object")
    kind = _kind(values, where)
    family = FAMILIES[kind]
    for key, wanted in _REQUIRED[family.architecture].items():
        if (found := values.get(key, wanted)) not in (wanted, None):
            raise BrimfulError(f"{where}: {key} {found!r:.60} is not supported, only {wanted!r}")
    if values.get("quantization_config") is not None:
        raise BrimfulError(f"{where}: quantized weights are not supported: save the model without them")
    given: dict[str, Any] = {"pad_token_id": family.pad_id}
    for key, value in values.items():
        if isinstance(value, float) and value.is_integer():
            given[key] = int(value)
        elif value is not None or key == "local_rope_theta":  # there, null is a value
            given[key] = value
    try:
        if family.architecture == "modern":
            return _modern_config(msgspec.convert(given, _ModernNumbers), where)
        return _bert_config(msgspec.convert(given, _BertNumbers), kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).replace("`", "").partition(" - at $.")
        if not place:
            raise BrimfulError(f"{where} lacks {what.rpartition(' ')[2]!r}") from error
        found = json.dumps(values[re.split(r"\W", place)[0]])
        raise BrimfulError(f"{where}: {place} is {found:.60}: {what.lower()}") from error
    except (ValueError, BrimfulError) as error:
        raise BrimfulError(f"{where}: {error}") from error


def shape_of(folder: ModelFolder) -> EncoderConfig:
    """The shape of the encoder in a folder.

    Raises:
        BrimfulError: as `read_config`.
    """
    return read_config(folder.values, str(folder.config_file))


def _shared(numbers: _Numbers, *, unused: int = 0, longest: int = 2**31 - 1) -> dict[str, Any]:
    """What both kinds of configurations have.

    Args:
        unused: position embeddings before the first.
        longest: sequence that is read.
    """
    length = numbers.max_position_embeddings - unused
    if not 3 <= length <= longest:  # [CLS], a token, [SEP]
        raise ValueError(
            f"max_position_embeddings is {numbers.max_position_embeddings}: it must be from {unused + 3} to"
            f" {min(unused + longest, 2**31 - 1):,}"
        )
    sizes = {ours: getattr(numbers, theirs) for ours, theirs in _SHARED.items()}
    return sizes | {
        "max_length": length,
        "pad_id": numbers.pad_token_id,
        "initializer_range": numbers.initializer_range,
    }


def _bert_config(numbers: _BertNumbers, kind: str) -> EncoderConfig:
    family = FAMILIES[kind]
    width = numbers.embedding_size if kind == "electra" else numbers.hidden_size
    return EncoderConfig(
        architecture=family.architecture,
        variant=family.variant,
        embedding_size=None if width == numbers.hidden_size else width,
        segments=numbers.type_vocab_size,
        norm_eps=numbers.layer_norm_eps,
        dropout=numbers.hidden_dropout_prob,
        attention_dropout=numbers.attention_probs_dropout_prob,
        **_shared(numbers, unused=numbers.pad_token_id + 1 if family.prefix == "roberta." else 0),
    )


def _modern_config(numbers: _ModernNumbers, where: str) -> EncoderConfig:
    if numbers.embedding_dropout != numbers.mlp_dropout:
        warn(f"{where}: embedding_dropout differs from mlp_dropout; mlp_dropout is used for both")
    ropes = {kind: rope or _Rope() for kind, rope in numbers.rope_parameters.items()}
    kinds = {kind for rope in ropes.values() for kind in (rope.rope_type, rope.type)}
    if numbers.rope_scaling or kinds - {"default"}:
        raise ValueError("scaled rotary positions are not supported")
    theta = ropes.get("full_attention", _Rope()).rope_theta or numbers.global_rope_theta
    local = numbers.local_rope_theta or theta  # null: as in transformers before version 5
    return EncoderConfig(
        norm_eps=numbers.norm_eps,
        dropout=numbers.mlp_dropout,
        attention_dropout=numbers.attention_dropout,
        local_attention=numbers.local_attention,
        rope_theta=theta,
        rope_theta_local=ropes.get("sliding_attention", _Rope()).rope_theta or local,
        global_every=_global_every(numbers),
        **_shared(numbers, longest=_MOST_ROTATED),
    )


def _global_every(numbers: _ModernNumbers) -> int:
    if numbers.layer_types is None:
        return numbers.global_attn_every_n_layers
    layers = numbers.num_hidden_layers
    for every in range(1, layers + 1):
        if numbers.layer_types == _layer_types(layers, every):
            return every
    raise ValueError("layer_types must have a full_attention layer first and then every n layers")


def _layer_types(layers: int, every: int) -> list[str]:
    return ["sliding_attention" if index % every else "full_attention" for index in range(layers)]


def write_config(config: EncoderConfig, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The part of config.json that describes the encoder; the inverse of `read_config`."""
    special = None if tokenizer is None else special_ids(tokenizer)
    cls, sep = (None, None) if special is None else (special.cls, special.sep)
    values = {
        "model_type": _MODEL_TYPES[config.architecture, config.variant],
        **{theirs: getattr(config, ours) for ours, theirs in _SHARED.items()},
        "max_position_embeddings": config.position_offset + config.max_length,
        "pad_token_id": config.pad_id,
        "bos_token_id": cls,
        "eos_token_id": sep,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": True,
        **_REQUIRED[config.architecture],
    }
    if config.variant == "electra":
        values["embedding_size"] = config.embedding_width
    if not config.modern:
        return values | {
            "type_vocab_size": config.segments,
            "layer_norm_eps": config.norm_eps,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
        }
    return values | {
        "cls_token_id": cls,
        "sep_token_id": sep,
        "norm_eps": config.norm_eps,
        "attention_dropout": config.attention_dropout,
        "embedding_dropout": config.dropout,
        "mlp_dropout": config.dropout,
        "local_attention": config.local_attention,
        "layer_types": _layer_types(config.layers, config.global_every),
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.rope_theta_local},
        },
    }


def class_names(folder: ModelFolder, classes: int, weights: str) -> list[str] | None:
    """The names of a head's classes, from id2label of config.json; None if there are none.

    Args:
        weights: the file of the head, for messages.

    Raises:
        BrimfulError: it does not name these classes.
    """
    names = folder.values.get("id2label")
    if not names:
        return None
    if not isinstance(names, dict) or not all(isinstance(name, str | int | float) for name in names.values()):
        raise BrimfulError(f"{weights}: id2label of its config.json is not an object of names by number")
    if names.keys() != {str(index) for index in range(classes)}:
        raise BrimfulError(
            f"{weights} has {classes} outputs, and id2label of its config.json {len(names)} names, from"
            f" {min(names):.40} to {max(names):.40}: it must name 0 to {classes - 1}"
        )
    return [str(names[str(index)]) for index in range(classes)]
