"""The files that decide a run's result: a resume needs the files that the run began with."""

import os
from collections.abc import Mapping
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.base.storage import crc32, read_object, require_shape
from brimful.corpus.text.folder_files import find_tokenizer_files
from brimful.hf.folders import module_files
from brimful.hf.model_folder import ModelFolder
from brimful.hf.weights import weight_files

INPUTS = "inputs.json"
"""The file with the CRCs of the files that a run reads. It stays until the run is finished."""


RunFiles = dict[str, Path]
"""Files that a run reads, by the run's names for them, which are the same on other machines."""


def check_inputs(directory: Path, files: Mapping[str, Path]) -> dict[str, int]:
    """Return the CRC of each file that a run reads, by the run's name for it.

    Raises:
        BrimfulError: the run in this directory has begun with another file.
    """
    # Contents are compared, so that a resume may find the files under other paths.
    checksums = {name: crc32(path) for name, path in files.items()}
    record = directory / INPUTS
    if not record.exists():
        return checksums
    earlier = read_object(record)
    require_shape(earlier, dict[str, int], record, "remove it, and the files go unchecked")
    for name in sorted(checksums.keys() | earlier.keys()):
        if checksums.get(name) != earlier.get(name):
            where = f" ({files[name]})" if name in files else ""
            raise BrimfulError(
                f"{name}{where} is not what {directory} began with: put it back as it was, or start a new run"
            )
    return checksums


def model_files(name: str, folder: ModelFolder) -> RunFiles:
    """List the files of a model for `check_inputs`. The run calls the model by `name`, such as "teacher"."""
    paths = [folder.config_file] if folder.config_file.exists() else []
    paths += find_tokenizer_files(folder.encoder_path)
    paths += weight_files(folder.encoder_path)
    paths += module_files(folder)
    # Relative to the folder, so that the names are the same on other machines.
    return {f"{name}/{os.path.relpath(path, folder.path)}": path for path in paths}
