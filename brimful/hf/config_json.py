"""config.json of a Hugging Face folder <-> our configuration, for the families of models in `FAMILIES`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
_MOST = 2**31 - 1
_MOST_LAYERS = 1000
_MOST_ROTATED = 2**20  # positions whose angles are kept in memory


def _kind(values: dict[str, Any], where: str) -> str:
    """The model_type of a config.json, also of one that does not say it and can only be one."""
    kind = values.get("model_type")
    if kind is None and "kind" in values:
        raise BrimfulError(f"{where} describes a {values['kind']!s:.40}, not an encoder")
    if isinstance(kind, str) and kind in FAMILIES:
        return kind
    known = ", ".join(FAMILIES)
    if kind is not None:
        raise BrimfulError(f"{where}: model_type {kind!r:.60} is not supported; known: {known}")
    names = values.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if isinstance(name, str):
        for kind, family in FAMILIES.items():
            if re.match(f"{family.name}(Model|For|LM)", name):
                return kind
        raise BrimfulError(f"{where}: a {name!r:.60} is not supported; known model types: {known}")
    segments = values.get("type_vocab_size")
    if values.keys() >= _BERT_ALONE and not values.keys() & _OTHERS and segments != 1:
        return "bert"
    raise BrimfulError(f'{where} does not say what it describes: add "model_type", one of {known}')


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a config.json."""

    values: Mapping[str, Any]

    def whole(self, key: str, default: int | None = None, *, least: int = 0, most: int = _MOST) -> int:
        """A whole number.

        Raises:
            KeyError: it is absent, and there is no default.
            ValueError: it is something else, or out of range.
        """
        value = self._given(key, default)
        right = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not right or not least <= value <= most:
            raise ValueError(f"{key} is {_shown(value)}: it must be a whole number from {least} to {most:,}")
        return int(value)

    def real(self, key: str, default: float, *, least: float = 0.0, most: float = 1.0) -> float:
        """A number.

        Raises:
            ValueError: it is something else, or out of range.
        """
        value = self._given(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"{key} is {_shown(value)}: it must be a number from {least:g} to {most:g}")
        return float(value)

    def _given(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise KeyError(key)
            return default
        return value


def _shown(value: Any) -> str:
    """A value as JSON writes it, cut."""
    return f"{json.dumps(value, ensure_ascii=True):.60}"


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
    try:
        return _encoder_config(values, kind, family, where)
    except KeyError as error:
        raise BrimfulError(f"{where} lacks {error.args[0]!r}") from error
    except (ValueError, BrimfulError) as error:
        raise BrimfulError(f"{where}: {error}") from error


def shape_of(folder: ModelFolder) -> EncoderConfig:
    """The shape of the encoder in a folder.

    Raises:
        BrimfulError: as `read_config`.
    """
    return read_config(folder.values, str(folder.config_file))


def _encoder_config(values: dict[str, Any], kind: str, family: Family, where: str) -> EncoderConfig:
    number = _Numbers(values)
    modern = family.architecture == "modern"
    number.real("classifier_dropout", 0.0)
    limits = {"num_hidden_layers": _MOST_LAYERS}
    sizes = {
        ours: number.whole(theirs, least=1, most=limits.get(theirs, _MOST))
        for ours, theirs in _SHARED.items()
    }
    pad = number.whole("pad_token_id", family.pad_id)
    unused_positions = pad + 1 if family.prefix == "roberta." else 0
    shortest, longest = unused_positions + 3, _MOST_ROTATED if modern else _MOST  # [CLS], a token, [SEP]
    shared: dict[str, Any] = {
        **sizes,
        "architecture": family.architecture,
        "max_length": number.whole("max_position_embeddings", least=shortest, most=longest)
        - unused_positions,
        "pad_id": pad,
        "initializer_range": number.real("initializer_range", 0.02, most=100.0),
    }
    if not modern:
        width = number.whole("embedding_size", 128, least=1) if kind == "electra" else sizes["hidden_size"]
        return EncoderConfig(
            variant=family.variant,
            embedding_size=None if width == sizes["hidden_size"] else width,
            segments=number.whole("type_vocab_size", 2, least=1),
            norm_eps=number.real("layer_norm_eps", 1e-12),
            dropout=number.real("hidden_dropout_prob", 0.1),
            attention_dropout=number.real("attention_probs_dropout_prob", 0.1),
            **shared,
        )
    dropout = number.real("mlp_dropout", 0.0)
    if number.real("embedding_dropout", 0.0) != dropout:
        warn(f"{where}: embedding_dropout differs from mlp_dropout; mlp_dropout is used for both")
    theta = _theta(values, "full_attention", "global_rope_theta", 160_000.0)
    if values.get("local_rope_theta", theta) is None:  # as in transformers before version 5
        values = values | {"local_rope_theta": theta}
    return EncoderConfig(
        norm_eps=number.real("norm_eps", 1e-5),
        dropout=dropout,
        attention_dropout=number.real("attention_dropout", 0.0),
        local_attention=number.whole("local_attention", 128, least=1),
        rope_theta=theta,
        rope_theta_local=_theta(values, "sliding_attention", "local_rope_theta", 10_000.0),
        global_every=_global_every(values, sizes["layers"]),
        **shared,
    )


def _theta(values: dict[str, Any], kind: str, old_key: str, default: float) -> float:
    rope = values.get("rope_parameters") or {}
    parameters = (rope.get(kind) or {}) if isinstance(rope, dict) else None
    if not isinstance(parameters, dict):
        raise ValueError(f"rope_parameters is {_shown(rope)}: it must be an object for each type of layer")
    kind_of_rope = parameters.get("rope_type", parameters.get("type", "default"))
    if kind_of_rope != "default" or values.get("rope_scaling"):
        raise ValueError("scaled rotary positions are not supported")
    given = {"rope_theta": parameters.get("rope_theta"), old_key: values.get(old_key)}
    key = "rope_theta" if given["rope_theta"] else old_key
    return _Numbers(given).real(key, default, least=1e-3, most=1e12)


def _global_every(values: dict[str, Any], layers: int) -> int:
    types = values.get("layer_types")
    if types is None:
        return _Numbers(values).whole("global_attn_every_n_layers", 3, least=1)
    for every in range(1, layers + 1):
        if types == _layer_types(layers, every):
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
