"""The modules that sentence-transformers (version 3 and later) runs after an encoder, read and written.

modules.json lists them: a Transformer (the folder itself), a Pooling, and for a `SequenceHead` that is linear
a Dense without activation, which is its classifier.
"""

from pathlib import Path

from torch import Tensor

from brimful.nn.hf_weights import NAMES
from brimful.nn.layers import Pooling
from brimful.storage import read_object, write_json, write_tensors
from brimful.text.sentence_folder import MODULES, SETTINGS, modules, settings_file, transformer_settings

CLASSIFIER = "2_Dense"
POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "first"}
"""Their names of poolings, here and in `classifier_pooling` of config.json, and ours."""
THEIRS = {ours: theirs for theirs, ours in POOLINGS.items()}
_POOLING = "1_Pooling"
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The key of each of their poolings in 1_Pooling/config.json before version 6, which reads them too."""
_IDENTITY = "torch.nn.modules.linear.Identity"


def encoder_folder(folder: Path) -> Path:
    """Where the encoder's files are: the folder, or in old ones the subfolder of the Transformer."""
    if (folder / "config.json").is_file():
        return folder
    path = next((path for kind, path in modules(folder) if kind == "Transformer"), "")
    return folder / path


def read_pooling(folder: Path) -> Pooling | None:
    """The pooling that a folder asks for; None if it asks for none, or for one that is not here."""
    path = next((path for kind, path in modules(folder) if kind == "Pooling"), None)
    if path is None:
        return None
    values = read_object(folder / path / "config.json")
    modes = values.get("pooling_mode") or [mode for mode, flag in _FLAGS.items() if values.get(flag)]
    modes = [modes] if isinstance(modes, str) else modes
    return POOLINGS.get(modes[0]) if len(modes) == 1 else None


def has_classifier(folder: Path) -> bool:
    """Whether the folder is an encoder, a mean and a Dense without activation, and nothing else."""
    after = modules(folder)[1:]
    if after != [("Pooling", _POOLING), ("Dense", CLASSIFIER)] or read_pooling(folder) != "mean":
        return False
    return read_object(folder / CLASSIFIER / "config.json").get("activation_function") == _IDENTITY


def other_modules(folder: Path, *, classifier: bool) -> list[str]:
    """The subfolders of modules that are not read: other poolings, and what follows a pooling.

    Args:
        classifier: whether the Dense was read, as the classifier.
    """
    read = {"Transformer", *(["Pooling"] if read_pooling(folder) else []), *(["Dense"] if classifier else [])}
    return [path for kind, path in modules(folder) if kind not in read]


def max_sequence_length(folder: Path) -> int | None:
    """The length, in tokens, at which the folder says that texts are cut; None if it does not."""
    value = transformer_settings(encoder_folder(folder)).get("max_seq_length")
    return value if isinstance(value, int) else None


def module_files(folder: Path) -> list[Path]:
    """The files of a folder that describe or hold its modules, without the encoder's."""
    inside = [folder / path / name for _, path in modules(folder) if path for name in ("config.json", *NAMES)]
    found = (folder / MODULES, settings_file(encoder_folder(folder)), *inside)
    return [path for path in found if path is not None and path.is_file()]


def write_modules(
    folder: Path, width: int, pooling: Pooling, max_length: int, classifier: dict[str, Tensor] | None = None
) -> None:
    """Write the files that make an encoder's folder one of sentence-transformers.

    Args:
        width: of the encoder.
        max_length: the length, in tokens, at which texts are cut.
        classifier: linear.weight (classes, width) and linear.bias, if there is one.
    """
    written = [("Transformer", ""), ("Pooling", _POOLING)]
    write_json(folder / SETTINGS, {"max_seq_length": max_length, "do_lower_case": False})
    (folder / _POOLING).mkdir()
    flags = {flag: THEIRS[pooling] == mode for mode, flag in _FLAGS.items()}
    write_json(folder / _POOLING / "config.json", {"word_embedding_dimension": width, **flags})
    if classifier is not None:
        written.append(("Dense", CLASSIFIER))
        (folder / CLASSIFIER).mkdir()
        sizes = {"in_features": width, "out_features": len(classifier["linear.weight"])}
        values = sizes | {"bias": True, "activation_function": _IDENTITY}
        write_json(folder / CLASSIFIER / "config.json", values)
        write_tensors(folder / CLASSIFIER / "model.safetensors", classifier)
    write_json(
        folder / MODULES,
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(written)
        ],
    )
