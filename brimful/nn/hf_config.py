"""config.json of a Hugging Face folder <-> our configuration: BERT and ModernBERT, nothing else."""

from typing import Any

from tokenizers import Tokenizer

from brimful.console import warn
from brimful.corpus.tokenization.tokenizer import special_ids
from brimful.errors import BrimfulError
from brimful.nn.layers import EncoderConfig

MODEL_TYPES = {"bert": "bert", "modern": "modernbert"}
CLASS_PREFIX = {"bert": "Bert", "modern": "ModernBert"}

# Keys that have one supported value, and it.
_REQUIRED: dict[str, dict[str, Any]] = {
    "bert": {
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
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
    "max_length": "max_position_embeddings",
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
    architecture = next((name for name, theirs in MODEL_TYPES.items() if theirs == kind), None)
    if architecture is None:
        raise BrimfulError(f"{where}: model_type {kind!r} is not supported; known: bert, modernbert")
    for key, wanted in _REQUIRED[architecture].items():
        if (found := values.get(key, wanted)) not in (wanted, None):
            raise BrimfulError(f"{where}: {key} {found!r} is not supported, only {wanted!r}")
    try:
        sizes = {ours: int(values[theirs]) for ours, theirs in _SHARED.items()}
        shared: dict[str, Any] = {
            **sizes,
            "pad_id": int(values.get("pad_token_id") or 0),
            "initializer_range": float(values.get("initializer_range", 0.02)),
        }
        if values.get("attention_probs_dropout_prob") or values.get("attention_dropout"):
            warn(f"{where} has dropout of attention probabilities; it is left out here")
        if architecture == "bert":
            return EncoderConfig(
                architecture="bert",
                segments=int(values.get("type_vocab_size", 2)),
                norm_eps=float(values.get("layer_norm_eps", 1e-12)),
                dropout=float(values.get("hidden_dropout_prob", 0.1)),
                **shared,
            )
        return EncoderConfig(
            architecture="modern",
            norm_eps=float(values.get("norm_eps", 1e-5)),
            dropout=float(values.get("mlp_dropout", 0.0)),
            local_attention=int(values.get("local_attention", 128)),
            rope_theta=_theta(values, "full_attention", "global_rope_theta", 160_000.0),
            rope_theta_local=_theta(values, "sliding_attention", "local_rope_theta", 10_000.0),
            global_every=_global_every(values, sizes["layers"]),
            **shared,
        )
    except KeyError as error:
        raise BrimfulError(f"{where} lacks {error.args[0]!r}") from error
    except (TypeError, ValueError) as error:
        raise BrimfulError(f"{where}: {error}") from error


def _theta(values: dict[str, Any], kind: str, old_key: str, default: float) -> float:
    parameters = (values.get("rope_parameters") or {}).get(kind) or {}
    if parameters.get("rope_type", "default") != "default" or values.get("rope_scaling"):
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
    """What config.json says about the encoder itself; the inverse of `read_config`."""
    special = None if tokenizer is None else special_ids(tokenizer)
    cls, sep = (None, None) if special is None else (special.cls, special.sep)
    values = {
        "model_type": MODEL_TYPES[config.architecture],
        **{theirs: getattr(config, ours) for ours, theirs in _SHARED.items()},
        "pad_token_id": config.pad_id,
        "bos_token_id": cls,
        "eos_token_id": sep,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": True,
        **_REQUIRED[config.architecture],
    }
    if config.architecture == "bert":
        return values | {
            "type_vocab_size": config.segments,
            "layer_norm_eps": config.norm_eps,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": 0.0,
        }
    return values | {
        "cls_token_id": cls,
        "sep_token_id": sep,
        "norm_eps": config.norm_eps,
        "attention_dropout": 0.0,
        "embedding_dropout": config.dropout,
        "mlp_dropout": config.dropout,
        "local_attention": config.local_attention,
        "layer_types": _layer_types(config.layers, config.global_every),
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.rope_theta_local},
        },
    }
