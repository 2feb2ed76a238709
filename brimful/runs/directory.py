"""A run directory: config.yaml, metrics.jsonl, checkpoints/, the model's folder, and summary.json last."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from brimful.base.config import build, read_yaml
from brimful.base.errors import BrimfulError
from brimful.base.storage import (
    crc32,
    read_object,
    require_shape,
)
from brimful.corpus.text.folder_files import find_tokenizer_files
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import module_files
from brimful.hf.weights import weight_files
from brimful.runs.places import CONFIG, has, require_run

SUMMARY = "summary.json"
MODELS = ("encoder", "model")
"""Where a finished run has its model: of pretraining, or of a task."""
INPUTS = "inputs.json"
"""CRCs of the files that a run reads, kept until it is finished. A resume needs the same files."""


C = TypeVar("C")


def read_config(directory: Path, kind: type[C], verb: str, needs: Sequence[str]) -> C:
    """The configuration of an interrupted run.

    Args:
        kind: of the configurations of `verb`.
        needs: see `require_options`.

    Raises:
        BrimfulError: there is no run to resume, or another verb has written it.
    """
    require_run(directory)
    values = read_yaml(directory / CONFIG)
    try:
        saved = build(kind, values)
        for need in needs:
            if not has(saved, need):
                raise BrimfulError(f"key {need} is required")
    except BrimfulError as error:
        raise BrimfulError(
            f"{directory / CONFIG} was not written by `brimful {verb}`: {error}; --resume takes the --out of"
            " an earlier run, with its files as they were. If a version with other options wrote it, start a"
            f" new run; `brimful export {directory} --step N` gives its model"
        ) from error
    return saved


def check_inputs(directory: Path, files: Mapping[str, Path]) -> dict[str, int]:
    """The CRC of each file that a run reads, by the run's name for it.

    Raises:
        BrimfulError: the run in this directory has begun with another file.
    """
    found = {name: crc32(path) for name, path in files.items()}
    if (directory / INPUTS).exists():
        known = read_object(directory / INPUTS)
        require_shape(known, dict[str, int], directory / INPUTS, "remove it, and the files go unchecked")
        for name in sorted(found.keys() | known.keys()):
            if found.get(name) != known.get(name):
                where = f" ({files[name]})" if name in files else ""
                raise BrimfulError(
                    f"{name}{where} is not what {directory} began with: put it back as it was, or start a new"
                    " run"
                )
    return found


def named_files(**given: str | Path | Sequence[str] | None) -> dict[str, Path]:
    """The files that options name, for `check_inputs`. Those of one option are numbered from 0."""
    files: dict[str, Path] = {}
    for name, value in given.items():
        if isinstance(value, str | Path):
            files |= {name: Path(value)} if value else {}
        else:
            files |= {f"{name}[{number}]": Path(path) for number, path in enumerate(value or ())}
    return files


def model_files(name: str, folder: ModelFolder) -> dict[str, Path]:
    """The files of a model, for `check_inputs`. `name` is the run's name for the model."""
    place = folder.encoder_path
    paths = [folder.config_file] if folder.config_file.exists() else []
    paths += find_tokenizer_files(place) + weight_files(place) + module_files(folder)
    return {f"{name}/{os.path.relpath(path, folder.path)}": path for path in paths}


def absolute(path: str) -> str:
    """The absolute path, so that a saved configuration works from any working directory."""
    return str(Path(path).absolute())
