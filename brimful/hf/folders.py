"""Hugging Face folders are the native format: read whole, written whole.

A folder holds config.json, model.safetensors and, if known, tokenizer.json; the AutoModel classes of
`transformers` load it without remote code. Other forms of weights are read too (`weights`), and other
files of a vocabulary (`text.tokenizer`). A classifier that `transformers` has no class for
(`SequenceHead.linear`) is in the modules of sentence-transformers, beside the encoder.
"""

import json
from pathlib import Path
from typing import TypeGuard, TypeVar

import torch
from tokenizers import Tokenizer

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.seals import CHECKSUMS, check_seal
from brimful.base.storage import (
    atomic_directory,
    read_object,
    require_folder_place,
    write_json,
    write_tensors,
)
from brimful.base.types import Values
from brimful.corpus.text.folder_files import (
    MODULES,
    PROMPTS,
    SETTINGS,
    find_settings_file,
    find_vocabulary_file,
)
from brimful.corpus.text.tokenizer import read as read_tokenizer
from brimful.corpus.text.tokenizer import require_rows
from brimful.corpus.text.tokenizer import save as save_tokenizer
from brimful.hf.config_json import FAMILIES, class_names, family_of, shape_of, write_config
from brimful.hf.int8_steps import FILE as INT8
from brimful.hf.int8_steps import forget_steps, products, read_steps
from brimful.hf.model_folder import (
    CLASSIFIER,
    FLAGS,
    IDENTITY,
    INTEGER_WEIGHTS,
    NORMALIZE,
    POOLING,
    POOLINGS,
    WEIGHTS,
    ModelFolder,
)
from brimful.hf.tensor_names import (
    Head,
    Tensors,
    add_prefix,
    classifier_weight,
    decoder_module,
    decoder_weight,
    from_hf,
    has_layer,
    hf_names,
    to_hf,
    word_matrix,
)
from brimful.hf.weights import read_weights, weight_files
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
from brimful.model.initial_weights import skip_initial_weights
from brimful.model.shape import Pooling, TextPooling

E = TypeVar("E", bound=Encoder)
AnyFolder = ModelFolder | Path | str

HEADS: dict[type[Head], str] = {
    MaskedLMHead: "ForMaskedLM",
    PretrainingHead: "ForPreTraining",
    PairHead: "ForNextSentencePrediction",
    SequenceHead: "ForSequenceClassification",
    TokenHead: "ForTokenClassification",
    SpanHead: "ForQuestionAnswering",
}
"""The ending of the name of a model's class in `transformers`, by the head."""
THEIRS = {ours: theirs for theirs, ours in POOLINGS.items()}
"""The names of our poolings in sentence-transformers."""
_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    INT8,
    CHECKSUMS,
)
"""Files of a model's folder besides its weights and modules."""


def _is_labelled(head: Head | None) -> TypeGuard[SequenceHead | TokenHead]:
    """Whether the classes of a head have names."""
    return type(head) in (SequenceHead, TokenHead)


def load_encoder(folder: AnyFolder, kind: type[E]) -> E:
    """Read the encoder of a folder as a module of the class `kind`, in evaluation mode, without its head.

    Raises:
        BrimfulError: the folder is incomplete, or holds a model of another type or shape.
    """
    return _load(ModelFolder.open(folder, "encoder"), kind)[0]


def _load(folder: ModelFolder, kind: type[E]) -> tuple[E, Tensors, str]:
    """Return the encoder, all tensors of its folder, and the file that they are in."""
    check_seal(folder.path)
    config = shape_of(folder)
    place = folder.encoder_path
    try:
        with skip_initial_weights():
            encoder = kind(config)
    except (RuntimeError, MemoryError) as error:  # torch raises either for an impossible size
        raise BrimfulError(
            f"{folder.config_file}: an encoder of this size does not fit into memory"
        ) from error
    tensors, path = named_tensors(folder, encoder)
    prefix = family_of(config).prefix
    bare_tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    from_hf(encoder, config, bare_tensors, path)  # copies: the file can be replaced later
    pooling = folder.pooling or POOLINGS.get(str(folder.values.get("classifier_pooling")))
    encoder.pooling = None if pooling == "max" else pooling  # no classifier has max
    file = find_vocabulary_file(place)
    if file is not None:
        encoder.tokenizer = read_tokenizer(place)
        require_rows(encoder.tokenizer, config.vocabulary_size, str(file))
    read_steps(place, encoder)
    return encoder.eval(), tensors, path


def named_tensors(folder: ModelFolder, encoder: Encoder) -> tuple[Tensors, str]:
    """Read the tensors of a folder by their names in a `transformers` model with a head.

    If matrices are tied, one of them is enough. Older folders have the decoder's bias under two names; the
    name that `transformers` reads has precedence.

    Args:
        encoder: an encoder of the folder's shape.

    Returns:
        The tensors, and the file that they are in.

    Raises:
        BrimfulError: the folder has no weights, or tensors of the encoder are missing.
    """
    config = encoder.config
    weights, path = read_weights(folder.encoder_path)
    prefix, bare_names = family_of(config).prefix, hf_names(encoder, config)
    tensors = add_prefix(weights, bare_names, prefix, str(path))
    words, decoder = prefix + word_matrix(config), decoder_weight(config)
    if words not in tensors and decoder in tensors:
        if folder.values.get("tie_word_embeddings", True) is False:
            raise BrimfulError(
                f"{path} has no {words}, and config.json says that the decoder's matrix is another"
                " (tie_word_embeddings)"
            )
        tensors[words] = tensors[decoder]
    decoder_bias = f"{decoder.removesuffix('.weight')}.bias"
    if decoder_bias in tensors:
        tensors[f"{decoder_module(config)}.bias"] = tensors[decoder_bias]
    missing = sorted(prefix + name for name in bare_names if prefix + name not in tensors)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BrimfulError(
            f"{path} lacks the tensor {missing[0]}{more}; its first is {min(tensors)}. It is not the model"
            " of its config.json, or has the names of a wrapper: save the model itself by its save_pretrained"
        )
    if has_layer(tensors, config, config.layers):
        warn(f"{path} has more layers than the {config.layers} of config.json: the others are left out")
    return tensors, str(path)


def is_read_by_transformers(folder: ModelFolder, encoder: Encoder) -> bool:
    """Whether `transformers` finds the encoder of a folder that `load_model` has read. It does not if the
    folder has only the decoder's tied matrix."""
    is_named = folder.config_file.name == "config.json" and folder.values.get("model_type") in FAMILIES
    if weight_files(folder.encoder_path)[0].name == INTEGER_WEIGHTS:
        return False
    words = word_matrix(encoder.config)
    names = {words, family_of(encoder.config).prefix + words}
    return is_named and not names.isdisjoint(read_weights(folder.encoder_path)[0])


def load_model(folder: AnyFolder) -> tuple[Encoder, Head | None, list[str] | None]:
    """Read a folder: the encoder, its head, and the names of its classes; None for an absent one.

    Both modules are in evaluation mode, as after `from_pretrained`. A head that is not in `HEADS`, such as an
    Electra discriminator's, is left out.

    Raises:
        BrimfulError: the folder is incomplete, or holds a model of another type or shape.
    """
    folder = ModelFolder.open(folder, "model")
    encoder, tensors, where = _load(folder, Encoder)
    kind = _head_kind(encoder, folder.class_name, tensors, where)
    head: Head | None
    if kind is None:
        head = _linear_head(folder, encoder)
    else:
        with skip_initial_weights():
            head = _new_head(kind, encoder, folder.values, tensors)
        from_hf(head, encoder.config, tensors, where)
    if head is None:
        return encoder, None, None
    labels = class_names(folder, head.classes, where) if _is_labelled(head) else None
    return encoder, head.eval(), labels


def load_pretrained(folder: AnyFolder) -> tuple[Encoder, MaskedLMHead | None]:
    """Read the encoder and the heads of pretraining, from which training starts, in evaluation mode.

    The head is a PretrainingHead if all its tensors are there, else a MaskedLMHead if all its tensors are,
    else None. Other heads in the folder do not matter.

    Raises:
        BrimfulError: the folder is incomplete, or holds a model of another type or shape.
    """
    encoder, tensors, where = _load(ModelFolder.open(folder, "encoder"), Encoder)
    forget_steps(encoder)  # of int8: they do not fit weights that training changes
    head = _pretraining_head(encoder, tensors, where)
    if head is None:
        return encoder, None
    from_hf(head, encoder.config, tensors, where)
    return encoder, head.eval()


def _pretraining_head(encoder: Encoder, tensors: Tensors, where: str) -> MaskedLMHead | None:
    """Return a head of the first kind of pretraining whose tensors are all there, without weights."""
    for kind in (PretrainingHead, MaskedLMHead):
        with skip_initial_weights():
            head = kind(encoder)
        if hf_names(head, encoder.config) <= tensors.keys():
            return head if _is_tied(encoder, tensors, where) else None
    return None


def _head_kind(encoder: Encoder, name: str, tensors: Tensors, where: str) -> type[Head] | None:
    """Return the type of a folder's head, by the class in config.json."""
    kind = None
    for head, suffix in HEADS.items():
        if name.endswith(suffix):
            kind = head
    if name and not (kind and issubclass(kind, MaskedLMHead)):
        return kind
    # Tensors decide on a head of pretraining: some folders keep the name of a class without its head, others
    # have no name, and Electra's ForPreTraining is another head.
    pretrained = _pretraining_head(encoder, tensors, where)
    if pretrained is None:
        return None
    return MaskedLMHead if kind is MaskedLMHead else type(pretrained)


def _new_head(kind: type[Head], encoder: Encoder, values: Values, tensors: Tensors) -> Head:
    """Return a head of the shape that config.json and the tensors describe."""
    if issubclass(kind, MaskedLMHead | PairHead):
        return kind(encoder)
    rate = values.get("classifier_dropout")
    if kind is SpanHead:
        return SpanHead(encoder, dropout=rate)
    # Without the matrix the head has no classes, and `from_hf` names what is missing.
    classes = len(tensors.get(classifier_weight(kind, encoder.config), ()))
    if kind is TokenHead:
        return TokenHead(encoder, classes, dropout=rate)
    # Only ModernBERT's class reads this key; the others pool the first token.
    has_mean = encoder.config.modern and values.get("classifier_pooling") == "mean"
    pooling: Pooling = "mean" if has_mean else "first"
    return SequenceHead(encoder, classes, pooling=pooling, dropout=rate)


def _is_tied(encoder: Encoder, tensors: Tensors, where: str) -> bool:
    """Whether the decoder has no matrix of its own, or one that equals the embeddings; if not, warn."""
    words, decoder = encoder.word_embeddings.detach(), tensors.get(decoder_weight(encoder.config))
    if decoder is None or torch.equal(decoder.to(words), words):  # `equal` is False for other shapes
        return True
    warn(
        f"{where}: the masked-LM head is left out: its decoder is not tied to the embeddings, which is not"
        " supported"
    )
    return False


def _linear_head(folder: ModelFolder, encoder: Encoder) -> SequenceHead | None:
    """Return the head that `save_model` stores as modules of sentence-transformers, or None."""
    # A Dense of another origin has no `problem_type` beside it: it is part of an embedding.
    if encoder.config.modern or "problem_type" not in folder.values or not folder.has_classifier:
        return None
    tensors, path = read_weights(folder.path / CLASSIFIER)
    classes = len(tensors.get("linear.weight", ()))  # `from_hf` names the tensor that is missing
    with skip_initial_weights():
        head = SequenceHead(encoder, classes, pooling="mean", dropout=folder.values.get("classifier_dropout"))
    from_hf(head, encoder.config, tensors, str(path))
    return head


def save_model(
    directory: Path | str,
    encoder: Encoder,
    head: Head | None = None,
    labels: list[str] | None = None,
    *,
    max_length: int | None = None,
    problem_type: str | None = None,
    token_types: bool = True,
    extra: Values | None = None,
    modules: Values | None = None,
) -> None:
    """Write, atomically, a folder that `load_model` and the AutoModel classes of `transformers` load.

    A head that is `linear` is stored as sentence-transformers does it: AutoModel loads the encoder, and
    SentenceTransformer the whole model, whose embeddings are the logits.

    Args:
        directory: a folder that holds a model and nothing else is replaced.
        encoder: saved with its tokenizer, if it has one.
        head: saved too; the AutoModelFor... class of its kind (`HEADS`) loads the folder. RoBERTa and
            ModernBERT have no class for a pair head; only `load_model` reads its tensors.
        labels: names of the classes of a SequenceHead or TokenHead, in their order.
        max_length: the length at which tokenizers should cut texts; by default the encoder's longest.
        problem_type: of a SequenceHead, as in `transformers`; by default "regression" for one class, else
            "single_label_classification".
        token_types: False for a model that was trained only with type 0: tokenizers then give no types, and
            `text_reading.reads_token_types` is False.
        extra: more keys of config.json.
        modules: arguments of `write_modules`, which say how an encoder makes vectors of texts.

    Raises:
        BrimfulError: the folder cannot be written, or holds anything but a model.
    """
    directory = Path(directory)
    if any(linear.steps for linear in products(encoder).values()):
        warn(f"{directory}: saved in float32; `brimful export --format int8` makes a folder with int8 again")
    require_folder_place(
        directory, replaces=("a folder of a model alone", _holds_only_model), remedy="choose another folder"
    )
    config = encoder.config
    family = family_of(config)
    values = write_config(config, encoder.tokenizer)
    tensors = to_hf(encoder, config)
    suffix = "Model"
    dense = to_hf(head, config) if isinstance(head, SequenceHead) and head.linear else None
    if head is not None and dense is None:  # a bare encoder's names have no prefix
        tensors = {family.prefix + name: tensor for name, tensor in tensors.items()}
        tensors |= to_hf(head, config)
        suffix = HEADS[type(head)]
    if isinstance(head, ClassifierHead) and (config.modern or _is_labelled(head)):
        values["classifier_dropout"] = head.dropout_rate  # other classes have no such key
    if _is_labelled(head):
        labels = labels or [f"LABEL_{index}" for index in range(head.classes)]
        values["id2label"] = dict(zip(map(str, range(head.classes)), labels, strict=True))
        values["label2id"] = dict(zip(labels, range(head.classes), strict=True))
    pooling = encoder.pooling
    if type(head) is SequenceHead:
        pooling = head.pooling
        usual = "regression" if head.classes == 1 else "single_label_classification"
        values["problem_type"] = problem_type or usual
    if pooling is not None:
        values["classifier_pooling"] = THEIRS[pooling]
    values["architectures"] = [family.name + suffix]
    values |= extra or {}  # may replace the keys above, but not the type of the tensors
    values["dtype"] = str(encoder.embedding.weight.dtype).removeprefix("torch.")
    length = max_length or config.max_length
    with atomic_directory(directory) as temporary:
        text = json.dumps(values, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        (temporary / "config.json").write_text(text, encoding="utf-8")
        write_tensors(temporary / "model.safetensors", tensors)
        if modules is not None:
            write_modules(temporary, config.hidden_size, **modules)
        if dense is not None:
            write_modules(temporary, config.hidden_size, "mean", length, dense)
        if encoder.tokenizer is not None:
            has_types = config.reads_segments and token_types
            save_tokenizer(encoder.tokenizer, temporary, model_max_length=length, segments=has_types)


def module_files(folder: ModelFolder) -> list[Path]:
    """List the files of a folder that describe or hold its modules, without the encoder's."""
    files = [folder.path / MODULES, folder.path / PROMPTS, find_settings_file(folder.encoder_path)]
    for _, path in folder.modules:
        if path:
            files += [folder.path / path / name for name in ("config.json", *WEIGHTS)]
    return [file for file in files if file is not None and file.is_file()]


def write_modules(
    folder: Path,
    width: int,
    pooling: TextPooling,
    max_length: int,
    classifier: Tensors | None = None,
    *,
    unit: bool = False,
    prompt: str = "",
) -> None:
    """Write the files that make an encoder's folder one of sentence-transformers, from version 3 on.

    Its modules are a Transformer (the folder itself), a Pooling and, for a linear `SequenceHead`, its
    classifier as a Dense without activation.

    Args:
        width: the size of the encoder's hidden states.
        max_length: the length, in tokens, at which texts are cut.
        classifier: linear.weight (classes, width) and linear.bias, if there is one.
        unit, prompt: as in `TextReading`.
    """
    flags = {flag: THEIRS[pooling] == mode for mode, flag in FLAGS.items()}
    settings: dict[tuple[str, str], Values] = {
        ("Pooling", POOLING): {"word_embedding_dimension": width, **flags}
    }
    if classifier is not None:
        settings["Dense", CLASSIFIER] = {
            "in_features": width,
            "out_features": len(classifier["linear.weight"]),
            "bias": True,
            "activation_function": IDENTITY,
        }
    if unit:
        settings["Normalize", NORMALIZE] = {}
    for (_, path), values in settings.items():
        (folder / path).mkdir()  # in a new folder: `atomic_directory`
        write_json(folder / path / "config.json", values)
    if classifier is not None:
        write_tensors(folder / CLASSIFIER / "model.safetensors", classifier)
    write_json(folder / SETTINGS, {"max_seq_length": max_length, "do_lower_case": False})
    if prompt:
        write_json(folder / PROMPTS, {"prompts": {"default": prompt}, "default_prompt_name": "default"})
    entries = []
    for number, (kind, path) in enumerate([("Transformer", ""), *settings]):
        type_name = f"sentence_transformers.models.{kind}"
        entries.append({"idx": number, "name": str(number), "path": path, "type": type_name})
    write_json(folder / MODULES, entries)


def _holds_only_model(directory: Path) -> bool:
    """Whether a folder is a model of a known type, and holds no other files."""
    try:
        is_model = read_object(directory / "config.json").get("model_type") in FAMILIES
        modules = module_files(ModelFolder(directory))
        parts = {*weight_files(directory), *modules, *(directory / name for name in _FILES)}
    except (BrimfulError, TypeError):  # a TypeError: the model_type is a list
        return False
    return is_model and all(path in parts or path.is_dir() for path in directory.rglob("*"))


def require_tokenizer(encoder: Encoder, place: ModelFolder | Path | str) -> Tokenizer:
    """Return the tokenizer of an encoder that was read from a folder, or raise a BrimfulError without one."""
    if encoder.tokenizer is None:
        raise BrimfulError(f"{place} has no tokenizer.json; add it beside config.json")
    return encoder.tokenizer


def count_parameters(*modules: torch.nn.Module | None) -> int:
    """Return the number of parameters of all modules; shared ones count once in each module."""
    return sum(parameter.numel() for module in modules if module for parameter in module.parameters())
