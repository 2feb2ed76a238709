"""The modules of a folder as sentence-transformers 6.2 describes them: their files, and their writer.

From version 3, sentence-transformers can read the modules written here: a Transformer (the folder itself),
a Pooling and, for a linear `SequenceHead`, its classifier as a Dense without activation.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.storage import write_json, write_tensors
from brimful.base.types import Values
from brimful.corpus.text.folder_files import MODULES, PROMPTS, SETTINGS, find_settings_file
from brimful.hf.model_folder import (
    CLASSIFIER,
    FLAGS,
    IDENTITY,
    NORMALIZE,
    POOLING,
    POOLINGS,
    WEIGHTS,
    ModelFolder,
)
from brimful.model.shape import TextPooling

if TYPE_CHECKING:
    from torch import Tensor

THEIRS = {ours: theirs for theirs, ours in POOLINGS.items()}
"""The names of our poolings in sentence-transformers."""


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
    classifier: "dict[str, Tensor] | None" = None,
    *,
    unit: bool = False,
    prompt: str = "",
) -> None:
    """Write the files that make an encoder's folder one of sentence-transformers.

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
