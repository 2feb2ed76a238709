"""The names of our parameters in `transformers`.

Our names are the same for every architecture. The names in `transformers` depend on the architecture; in
heads they depend on the prefix of the family (`config_json.FAMILIES`).
"""

import re
from collections.abc import Collection, Iterable, Iterator

from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.hf.config_json import family_of
from brimful.model.encoder import Encoder
from brimful.model.heads import (
    ClassifierHead,
    MaskedLMHead,
    PairHead,
    PretrainingHead,
    SequenceHead,
    SpanHead,
    TokenHead,
)
from brimful.model.shape import Architecture, EncoderConfig

Head = MaskedLMHead | ClassifierHead
Tensors = dict[str, Tensor]
"""Tensors by their names in `transformers`."""
Rules = dict[str, tuple[str, ...]]
"""Our parameter -> the names in `transformers`; several are concatenated along the first dimension."""
_ADAPTER = re.compile(r"\blora_|\bmodules_to_save\b|\bbase_layer\b|\bada_?lora")
"""Names of tensors that an adapter adds to a model's own."""

_BERT_EMBEDDINGS: Rules = {
    "embedding": ("embeddings.word_embeddings",),
    "position": ("embeddings.position_embeddings",),
    "segment": ("embeddings.token_type_embeddings",),
}
_ENCODER: dict[Architecture, Rules] = {
    "bert": _BERT_EMBEDDINGS
    | {"embedding_norm": ("embeddings.LayerNorm",), "embedding_projection": ("embeddings_project",)},
    "prenorm": _BERT_EMBEDDINGS | {"final_norm": ("encoder.ln",)},
    "modern": {
        "embedding": ("embeddings.tok_embeddings",),
        "embedding_norm": ("embeddings.norm",),
        "final_norm": ("final_norm",),
    },
}
_BERT_MATRICES: Rules = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_out": ("attention.output.dense",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
}
_LAYER: dict[Architecture, Rules] = {
    "bert": _BERT_MATRICES
    | {"attention_norm": ("attention.output.LayerNorm",), "mlp_norm": ("output.LayerNorm",)},
    "prenorm": _BERT_MATRICES | {"attention_norm": ("attention.ln",), "mlp_norm": ("ln",)},
    "modern": {
        "attention_norm": ("attn_norm",),
        "qkv": ("attn.Wqkv",),
        "attention_out": ("attn.Wo",),
        "mlp_norm": ("mlp_norm",),
        "up": ("mlp.Wi",),
        "down": ("mlp.Wo",),
    },
}
_LAYERS: dict[Architecture, str] = {"bert": "encoder.layer", "prenorm": "encoder.layer", "modern": "layers"}

_OLDER = ("bert.", "roberta.", "electra.")
_CLASSIFIER, _ANSWERS = {"classifier": "classifier"}, {"classifier": "qa_outputs"}
_PROJECTED = {"dense": "classifier.dense", "classifier": "classifier.out_proj"}
_OWN_PAIR = {"dense": "pair.dense", "classifier": "pair.classifier"}
_POOLER = {"dense": "bert.pooler.dense"}
_MODERN = {"dense": "head.dense", "norm": "head.norm"}
_HEADS: dict[type[Head], dict[str, dict[str, str]]] = {
    MaskedLMHead: {
        "bert.": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "": "cls.predictions",
        },
        "roberta.": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"},
        "electra.": {
            "dense": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "": "generator_lm_head",
        },
        "model.": _MODERN | {"": "decoder"},
    },
    SequenceHead: {
        "bert.": _POOLER | _CLASSIFIER,
        "roberta.": _PROJECTED,
        "electra.": _PROJECTED,
        "model.": _MODERN | _CLASSIFIER,
    },
    PairHead: {
        "bert.": _POOLER | {"classifier": "cls.seq_relationship"},
        "roberta.": _OWN_PAIR,
        "electra.": _OWN_PAIR,
        "model.": _OWN_PAIR | {"norm": "pair.norm"},
    },
    TokenHead: {**dict.fromkeys(_OLDER, _CLASSIFIER), "model.": _MODERN | _CLASSIFIER},
    SpanHead: {**dict.fromkeys(_OLDER, _ANSWERS), "model.": _MODERN | _CLASSIFIER},
}
"""By the prefix of the family. RoBERTa, Electra and ModernBERT have no pair head; our pair head has names of
our own there."""
_LINEAR = {"classifier": "linear"}
"""A head that consists of its classifier, under the names of a Dense of sentence-transformers."""


def _module_names(kind: type[Head], config: EncoderConfig) -> dict[str, str]:
    """Return the names in `transformers` of the modules of a head, by our names."""
    if kind is not PretrainingHead:
        return _HEADS[kind][family_of(config).prefix]
    names = dict(_module_names(MaskedLMHead, config))
    for ours, theirs in _module_names(PairHead, config).items():
        names[f"pair.{ours}"] = theirs
    return names


def decoder_weight(config: EncoderConfig) -> str:
    """Return the name in `transformers` of the decoder's matrix, which is tied to the embeddings."""
    # In older families, a module that has the bias alone holds the decoder.
    holds_decoder = family_of(config).prefix in ("bert.", "roberta.")
    return f"{decoder_module(config)}.{'decoder.' if holds_decoder else ''}weight"


def decoder_module(config: EncoderConfig) -> str:
    """Return the name in `transformers` of the module that has the decoder's bias."""
    return _module_names(MaskedLMHead, config)[""]


def word_matrix(config: EncoderConfig) -> str:
    """Return the name in `transformers` of the embedding matrix of words, without prefix."""
    return f"{_ENCODER[config.architecture]['embedding'][0]}.weight"


def classifier_weight(kind: type[ClassifierHead], config: EncoderConfig) -> str:
    """Return the name in `transformers` of the last matrix of a head, (classes, hidden)."""
    return f"{_module_names(kind, config)['classifier']}.weight"


def name_parameters(module: Encoder | Head, config: EncoderConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter, without vocabulary padding, under its name in `transformers`.

    A parameter with several names there, such as `qkv`, comes in parts, which are views of it.
    """
    if isinstance(module, Encoder):
        rules = dict(_ENCODER[config.architecture])
        for index in range(config.layers):
            for ours, theirs in _LAYER[config.architecture].items():
                names = tuple(f"{_LAYERS[config.architecture]}.{index}.{name}" for name in theirs)
                rules[f"layers.{index}.{ours}"] = names
    else:
        modules = _module_names(type(module), config)
        if isinstance(module, SequenceHead) and module.linear:
            modules = _LINEAR
        rules = {ours: (name,) for ours, name in modules.items()}
    for name, parameter in module.named_parameters():
        owner, _, kind = name.rpartition(".")
        if isinstance(module, Encoder) and name == "embedding.weight":
            parameter = module.word_embeddings  # type: ignore[assignment]
        theirs = rules[owner]
        for each, part in zip(theirs, parameter.detach().chunk(len(theirs)), strict=True):
            yield f"{each}.{kind}", part


def hf_names(module: Encoder | Head, config: EncoderConfig) -> set[str]:
    """Return the names in `transformers` of a module's parameters (an encoder's without prefix)."""
    return {name for name, _ in name_parameters(module, config)}


def to_hf(module: Encoder | Head, config: EncoderConfig) -> Tensors:
    """Copy a module's parameters under the names of `transformers` (an encoder's without prefix)."""
    return {name: part.cpu().clone() for name, part in name_parameters(module, config)}


def from_hf(module: Encoder | Head, config: EncoderConfig, tensors: Tensors, where: str = "") -> None:
    """Copy tensors under the names of `transformers` into a module's parameters.

    Raises:
        BrimfulError: a tensor is missing or has another shape.
    """
    for name, part in name_parameters(module, config):
        tensor = tensors.get(name)
        if tensor is None:
            raise BrimfulError(f"{where} lacks the tensor {name}; it is not the model of its config.json")
        if tensor.shape != part.shape:
            shapes = f"{tuple(tensor.shape)}, not {tuple(part.shape)}"
            raise BrimfulError(f"{where}: the tensor {name} has the shape {shapes} of config.json")
        part.copy_(tensor)


def add_prefix(tensors: Tensors, names: Collection[str], prefix: str, where: str) -> Tensors:
    """Return the tensors of a folder under the names that they have in a model with a head.

    Args:
        tensors: by the names in the file. An encoder that was saved by itself has no prefix there.
        names: the names of the encoder's tensors without prefix.
        prefix: the beginning of their names in a model with a head.
        where: the file, for messages.

    Raises:
        BrimfulError: an adapter is beside the weights.
    """
    adapters = next((name for name in tensors if _ADAPTER.search(name)), None)
    if adapters is not None:
        raise BrimfulError(
            f"{where} has an adapter beside its weights ({adapters}): merge it into them, as peft's"
            " merge_and_unload does, and save the model again"
        )
    if any(prefix + name in tensors for name in names):
        return dict(tensors)
    parts = {name.partition(".")[0] for name in names} | {"pooler"}
    prefixed = {}
    for name, tensor in tensors.items():
        if name.partition(".")[0] in parts:
            name = prefix + name
        prefixed[name] = tensor
    return prefixed


def has_layer(tensors: Iterable[str], config: EncoderConfig, index: int) -> bool:
    """Whether there is a tensor of layer number `index` among the names in `transformers`."""
    start = f"{family_of(config).prefix}{_LAYERS[config.architecture]}.{index}."
    return any(name.startswith(start) for name in tensors)
