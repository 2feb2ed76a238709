"""config.json of a Hugging Face folder <-> our configuration, for the families of models in `FAMILIES`."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from brimful.console import warn
from brimful.errors import BrimfulError
from brimful.nn.layers import Architecture, EncoderConfig, Variant
from brimful.text.tokenizer import special_ids


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


def read_config(values: Any, where: str) -> EncoderConfig:
    """The shape of the encoder that a config.json describes.

    Args:
        values: its JSON.
        where: its path, for messages.

    Raises:
        BrimfulError: another type of model, a missing size, or a variant that is not supported.
    """
    kind = values.get("model_type") if isinstance(values, dict) else None
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None and kind is None and isinstance(values, dict) and "kind" in values:
        raise BrimfulError(f"{where} describes a {values['kind']}, not an encoder")
    if family is None:
        raise BrimfulError(f"{where}: model_type {kind!r} is not supported; known: {', '.join(FAMILIES)}")
    for key, wanted in _REQUIRED[family.architecture].items():
        if (found := values.get(key, wanted)) not in (wanted, None):
            raise BrimfulError(f"{where}: {key} {found!r} is not supported, only {wanted!r}")
    try:
        if not 0 <= float(values.get("classifier_dropout") or 0) <= 1:
            raise ValueError("classifier_dropout is not from 0 to 1")
        sizes = {ours: int(values[theirs]) for ours, theirs in _SHARED.items()}
        pad = values.get("pad_token_id")
        pad = family.pad_id if pad is None else int(pad)
        unused_positions = pad + 1 if family.prefix == "roberta." else 0
        shared: dict[str, Any] = {
            **sizes,
            "architecture": family.architecture,
            "max_length": int(values["max_position_embeddings"]) - unused_positions,
            "pad_id": pad,
            "initializer_range": float(values.get("initializer_range", 0.02)),
        }
        if family.architecture != "modern":
            width = int(values.get("embedding_size", 128)) if kind == "electra" else sizes["hidden_size"]
            return EncoderConfig(
                variant=family.variant,
                embedding_size=None if width == sizes["hidden_size"] else width,
                segments=int(values.get("type_vocab_size", 2)),
                norm_eps=float(values.get("layer_norm_eps", 1e-12)),
                dropout=float(values.get("hidden_dropout_prob", 0.1)),
                attention_dropout=float(values.get("attention_probs_dropout_prob", 0.1)),
                **shared,
            )
        if values.get("embedding_dropout", 0.0) != values.get("mlp_dropout", 0.0):
            warn(f"{where}: embedding_dropout differs from mlp_dropout; mlp_dropout is used for both")
        theta = _theta(values, "full_attention", "global_rope_theta", 160_000.0)
        if values.get("local_rope_theta", theta) is None:  # as in transformers before version 5
            values = values | {"local_rope_theta": theta}
        return EncoderConfig(
            norm_eps=float(values.get("norm_eps", 1e-5)),
            dropout=float(values.get("mlp_dropout", 0.0)),
            attention_dropout=float(values.get("attention_dropout", 0.0)),
            local_attention=int(values.get("local_attention", 128)),
            rope_theta=theta,
            rope_theta_local=_theta(values, "sliding_attention", "local_rope_theta", 10_000.0),
            global_every=_global_every(values, sizes["layers"]),
            **shared,
        )
    except KeyError as error:
        raise BrimfulError(f"{where} lacks {error.args[0]!r}") from error
    except (AttributeError, TypeError, ValueError, BrimfulError) as error:
        raise BrimfulError(f"{where}: {error}") from error


def _theta(values: dict[str, Any], kind: str, old_key: str, default: float) -> float:
    parameters = (values.get("rope_parameters") or {}).get(kind) or {}
    kind_of_rope = parameters.get("rope_type", parameters.get("type", "default"))
    if kind_of_rope != "default" or values.get("rope_scaling"):
        raise ValueError("scaled rotary positions are not supported")
    return float(parameters.get("rope_theta") or values.get(old_key) or default)


def _global_every(values: dict[str, Any], layers: int) -> int:
    types = values.get("layer_types")
    if types is None:
        return int(values.get("global_attn_every_n_layers", 3))
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
