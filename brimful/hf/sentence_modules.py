"""The modules that sentence-transformers (version 3 and later) runs after an encoder: their files.

modules.json lists them: a Transformer (the folder itself), a Pooling, and for a `SequenceHead` that is linear
a Dense without activation, which is its classifier.
"""

from pathlib import Path

from torch import Tensor

from brimful.base.storage import write_json, write_tensors
from brimful.corpus.text.sentence_folder import MODULES, PROMPTS, SETTINGS, settings_file
from brimful.hf.model_folder import CLASSIFIER, FLAGS, IDENTITY, NORMALIZE, POOLING, POOLINGS, ModelFolder
from brimful.hf.weights import NAMES
from brimful.model.shape import TextPooling

THEIRS = {ours: theirs for theirs, ours in POOLINGS.items()}
"""The names of our poolings in sentence-transformers."""


def module_files(folder: ModelFolder) -> list[Path]:
    """The files of a folder that describe or hold its modules, without the encoder's."""
    names = ("config.json", *NAMES)
    inside = [folder.path / path / name for _, path in folder.modules if path for name in names]
    found = (folder.path / MODULES, folder.path / PROMPTS, settings_file(folder.encoder_path), *inside)
    return [path for path in found if path is not None and path.is_file()]


def write_modules(
    folder: Path,
    width: int,
    pooling: TextPooling,
    max_length: int,
    classifier: dict[str, Tensor] | None = None,
    *,
    unit: bool = False,
    prompt: str = "",
) -> None:
    """Write the files that make an encoder's folder one of sentence-transformers.

    Args:
        width: of the encoder.
        max_length: the length, in tokens, at which texts are cut.
        classifier: linear.weight (classes, width) and linear.bias, if there is one.
        unit, prompt: as of `reading.TextReading`.
    """
    written = [("Transformer", ""), ("Pooling", POOLING)]
    write_json(folder / SETTINGS, {"max_seq_length": max_length, "do_lower_case": False})
    (folder / POOLING).mkdir()
    flags = {flag: THEIRS[pooling] == mode for mode, flag in FLAGS.items()}
    write_json(folder / POOLING / "config.json", {"word_embedding_dimension": width, **flags})
    if classifier is not None:
        written.append(("Dense", CLASSIFIER))
        (folder / CLASSIFIER).mkdir()
        sizes = {"in_features": width, "out_features": len(classifier["linear.weight"])}
        values = sizes | {"bias": True, "activation_function": IDENTITY}
        write_json(folder / CLASSIFIER / "config.json", values)
        write_tensors(folder / CLASSIFIER / "model.safetensors", classifier)
    if unit:
        written.append(("Normalize", NORMALIZE))
        (folder / NORMALIZE).mkdir()
        write_json(folder / NORMALIZE / "config.json", {})
    if prompt:
        write_json(folder / PROMPTS, {"prompts": {"default": prompt}, "default_prompt_name": "default"})
    write_json(
        folder / MODULES,
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(written)
        ],
    )
