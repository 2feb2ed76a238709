"""Refuse wrong files and folders of a command in milliseconds, before torch is loaded.

The verbs open the same files and folders later, and refuse the same ones and more: they are also called from
Python, and under torchrun, where these checks are left out.
"""

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.base.storage import readable
from brimful.corpus.shards import require_prepared
from brimful.data.mixture import parse_sources
from brimful.exporting.formats import FORMATS, format_of, require_export_place
from brimful.hf.model_folder import ModelFolder
from brimful.runs.start_checks import START, require_options, require_run, require_run_place
from brimful.tables.layouts import find_layout
from brimful.tables.table_files import read_table
from brimful.tables.text_files import files_of_table
from brimful.tasks.registry import DEFAULT_TASK, TASKS_WITH_A_LABEL_COLUMN

if TYPE_CHECKING:
    from brimful.exporting.config import ExportConfig

TRAINING_VERBS = ("pretrain", "finetune", "evaluate", "distil", "distil-encoder")
MODEL_OPTIONS = ("encoder", "encoders", "start_from", "teacher", "student")
TABLE_OPTIONS = ("train", "dev", "test", "more_tests")


def check_inputs(verb: str, config: Any) -> None:
    """Refuse files and folders that the verb would refuse, where no model is needed to see the fault.

    Raises:
        BrimfulError: as the verb itself.
    """
    if "RANK" in os.environ:  # another rank may have made the folder of the run already
        return
    if verb == "export":
        _check_export(config)
    elif verb == "check":
        _check_files(list(config.files))
    elif verb == "augment":
        ModelFolder.open(config.encoder, "encoder")
        _check_files([config.input])
    elif verb in TRAINING_VERBS and _is_new_run(verb, config):
        kind = "model" if verb == "distil" else "encoder"
        for folder in _paths(config, MODEL_OPTIONS):
            ModelFolder.open(folder, kind)
        _check_texts(verb, config)


def _is_new_run(verb: str, config: Any) -> bool:
    """Return whether a run is new. Refuse a new run without its options or a free folder, and a
    resume of a folder that is no run."""
    if verb == "evaluate":
        config.require_complete()
    if config.resume is not None:
        require_run(Path(config.resume))
        return False
    require_options(config, verb, (*config.NEEDS, "out"))
    require_run_place(Path(config.out), verb)
    return True


def _check_texts(verb: str, config: Any) -> None:
    """Check that the texts of a run are there, and that the first row of a labelled table has a label."""
    if verb in ("pretrain", "distil-encoder"):
        for source in parse_sources(config.data or ()):
            require_prepared(Path(source.path))
    for path in _paths(config, ("text",)):
        if not Path(path).exists():
            raise BrimfulError(f"{path} does not exist")
    tables = [path for path in _paths(config, TABLE_OPTIONS) if path != "none"]
    _check_files([*tables, *_paths(config, ("unlabelled",))])
    if verb in ("finetune", "evaluate"):
        layout = find_layout(config)
        if (config.task or layout.task or DEFAULT_TASK) in TASKS_WITH_A_LABEL_COLUMN:
            for path in tables:
                file = files_of_table(path)[0]
                with record_warnings():  # the verb prints them
                    read_table(file, labelled=True, layout=layout, take=lambda rows: islice(rows, 1))


def _check_export(config: "ExportConfig") -> None:
    if config.format:
        FORMATS[config.format].require_packages()
    _check_files(_paths(config, ("test", "calibrate")))
    # Checkpoints are not model folders; the verb checks them itself.
    if config.step is None and not (Path(config.run) / START).is_dir():
        source = ModelFolder.open(config.run, "model")
        require_export_place(Path(config.out), source, format_of(config.format, source, config.run))


def _check_files(paths: list[str]) -> None:
    for path in paths:
        for file in files_of_table(path):
            with readable(file):
                os.stat(file)


def _paths(config: Any, names: tuple[str, ...]) -> list[str]:
    """Return the paths that these options give; not every verb has all of them."""
    paths: list[str] = []
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, tuple):
            paths += value
        elif value is not None:
            paths.append(value)
    return paths
