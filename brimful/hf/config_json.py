"""Convert config.json of Hugging Face folders to our configuration and back, for models in `FAMILIES`."""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from tokenizers import Tokenizer

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.corpus.text.special_ids import special_ids
from brimful.hf.model_folder import ModelFolder
from brimful.model.shape import Architecture, EncoderConfig, Variant


@dataclass(frozen=True)
class Family:
    """Models of `transformers` that share a configuration class.

    Attributes:
        architecture, variant: their values in our configuration.
        name: the beginning of the names of its classes.
        prefix: the beginning of the names of an encoder's tensors in a model with a head.
        pad_id: the padding token if config.json names none.
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
"""The families, by the model_type of config.json."""
_MODEL_TYPES = {(family.architecture, family.variant): kind for kind, family in FAMILIES.items()}


def family_of(config: EncoderConfig) -> Family:
    """Return the family that an encoder is saved as."""
    return FAMILIES[_MODEL_TYPES[config.architecture, config.variant]]


# Keys with a single supported value.
_BERT = {
    "hidden_act": "gelu",
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}
_REQUIRED: dict[Architecture, Values] = {
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
"""Sizes, by their names in our configuration."""
_BERT_KEYS = {*_SHARED.values(), "max_position_embeddings", "type_vocab_size"}
"""Keys of every configuration of BERT, also of those that name no model_type."""
_SHARED |= {"pad_id": "pad_token_id", "initializer_range": "initializer_range"}
_FOREIGN_KEYS = (
    *("embedding_size", "num_hidden_groups", "use_relative_position", "max_relative_position"),
    *("relative_attention", "rotary_value", "task_type_vocab_size", "intra_bottleneck_size"),
    "local_attention",
)
"""Keys of models that have the same sizes as BERT, and are others."""
Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Theta = Annotated[float, Meta(ge=1e-3, le=1e12)]
_ROTARY_POSITIONS = 2**20  # the most positions whose angles are kept in memory


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
    """The rotary positions of a type of layer in `transformers` 5; older ones have `type` for `rope_type`."""

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


def _find_model_type(values: Values, where: str) -> str:
    """Return the model_type of a config.json; "bert" without one, if it can only be BERT's."""
    model_type = values.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return model_type
    names = ", ".join(FAMILIES)
    if model_type is not None:
        raise BrimfulError(f"{where}: model_type {model_type!r:.60} is not supported; known: {names}")
    is_named_bert = re.search(r'"Bert(Model|For|LM)', json.dumps(values.get("architectures") or "BertModel"))
    has_keys = values.keys() >= _BERT_KEYS and values.keys().isdisjoint(_FOREIGN_KEYS)
    if is_named_bert and has_keys and values.get("type_vocab_size") != 1:  # 1 is RoBERTa's
        return "bert"
    raise BrimfulError(f'{where} does not say what it describes: add "model_type", one of {names}')


def read_config(values: Any, where: str) -> EncoderConfig:
    """Return the shape of the encoder that a config.json describes.

    Args:
        values: its JSON.
        where: its path, for messages.

    Raises:
        BrimfulError: another type of model, a missing size, or a variant that is not supported.
    """
    if not isinstance(values, dict):
        raise BrimfulError(f"{where} is not a JSON object")
    model_type = _find_model_type(values, where)
    family = FAMILIES[model_type]
    for key, supported in _REQUIRED[family.architecture].items():
        value = values.get(key, supported)
        if value not in (supported, None):
            raise BrimfulError(f"{where}: {key} {value!r:.60} is not supported, only {supported!r}")
    if values.get("quantization_config") is not None:
        raise BrimfulError(f"{where}: quantized weights are not supported: save the model without them")
    numbers = {"pad_token_id": family.pad_id}
    for key, value in values.items():
        if isinstance(value, float) and value.is_integer():
            numbers[key] = int(value)
        elif value is not None or key == "local_rope_theta":  # there, null is a value
            numbers[key] = value
    try:
        if family.architecture == "modern":
            return _modern_config(msgspec.convert(numbers, _ModernNumbers), where)
        return _bert_config(msgspec.convert(numbers, _BertNumbers), model_type)
    except msgspec.ValidationError as error:
        # "Expected `int` >= 1 - at `$.hidden_size`", or "Object missing required field `hidden_size`"
        fault, _, place = str(error).replace("`", "").partition(" - at $.")
        if not place:
            raise BrimfulError(f"{where} lacks {fault.rpartition(' ')[2]!r}") from error
        value = json.dumps(values[re.split(r"\W", place)[0]])
        raise BrimfulError(f"{where}: {place} is {value:.60}: {fault.lower()}") from error
    except (ValueError, BrimfulError) as error:
        raise BrimfulError(f"{where}: {error}") from error


def shape_of(folder: ModelFolder) -> EncoderConfig:
    """Return the shape of the encoder in a folder.

    Raises:
        BrimfulError: as `read_config`.
    """
    return read_config(folder.values, str(folder.config_file))


def _shared(numbers: _Numbers, *, unused: int = 0, longest: int = 2**31 - 1) -> Values:
    """Return the values that both kinds of configurations have. The first `unused` embeddings belong to no
    position, and sequences of at most `longest` tokens are supported."""
    length = numbers.max_position_embeddings - unused
    if not 3 <= length <= longest:  # [CLS], a token, [SEP]
        raise ValueError(
            f"max_position_embeddings is {numbers.max_position_embeddings}: it must be from {unused + 3} to"
            f" {min(unused + longest, 2**31 - 1):,}"
        )
    return {"max_length": length} | {ours: getattr(numbers, theirs) for ours, theirs in _SHARED.items()}


def _bert_config(numbers: _BertNumbers, model_type: str) -> EncoderConfig:
    family = FAMILIES[model_type]
    width = numbers.embedding_size if model_type == "electra" else numbers.hidden_size
    # RoBERTa's positions begin behind the padding token's id.
    unused = numbers.pad_token_id + 1 if family.prefix == "roberta." else 0
    return EncoderConfig(
        architecture=family.architecture,
        variant=family.variant,
        embedding_size=None if width == numbers.hidden_size else width,
        segments=numbers.type_vocab_size,
        norm_eps=numbers.layer_norm_eps,
        dropout=numbers.hidden_dropout_prob,
        attention_dropout=numbers.attention_probs_dropout_prob,
        **_shared(numbers, unused=unused),
    )


def _modern_config(numbers: _ModernNumbers, where: str) -> EncoderConfig:
    if numbers.embedding_dropout != numbers.mlp_dropout:
        warn(f"{where}: embedding_dropout differs from mlp_dropout; mlp_dropout is used for both")
    ropes = {layers: rope or _Rope() for layers, rope in numbers.rope_parameters.items()}
    is_scaled = any({rope.rope_type, rope.type} != {"default"} for rope in ropes.values())
    if numbers.rope_scaling or is_scaled:
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
        **_shared(numbers, longest=_ROTARY_POSITIONS),
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
    types = ["sliding_attention"] * layers
    types[::every] = ["full_attention"] * len(types[::every])
    return types


def write_config(config: EncoderConfig, tokenizer: Tokenizer | None) -> Values:
    """Return the part of config.json that describes the encoder; the inverse of `read_config`."""
    cls = sep = None
    if tokenizer is not None:
        special = special_ids(tokenizer)
        cls, sep = special.cls, special.sep
    values = {
        "model_type": _MODEL_TYPES[config.architecture, config.variant],
        **{theirs: getattr(config, ours) for ours, theirs in _SHARED.items()},
        "max_position_embeddings": config.position_offset + config.max_length,
        "bos_token_id": cls,
        "eos_token_id": sep,
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
    """Return the names of a head's classes, from id2label of config.json; None without that key.

    Args:
        weights: the file of the head, for messages.

    Raises:
        BrimfulError: id2label does not name these classes.
    """
    names = folder.values.get("id2label")
    if not names:
        return None
    numbers = list(map(str, range(classes)))
    is_named = isinstance(names, dict) and names.keys() == set(numbers)
    if not is_named or not all(isinstance(name, str | int | float) for name in names.values()):
        raise BrimfulError(
            f"{weights} has {classes} outputs: id2label of its config.json must name 0 to {classes - 1}"
        )
    return [str(names[number]) for number in numbers]
