"""What is wrong with the files and folders of a command, said before torch is loaded.

Here is only what costs milliseconds. The verbs refuse the same, and all the rest, themselves: they are called
from Python too, and under torchrun, where other processes may be ahead.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.base.errors import BrimfulError
from brimful.corpus.shards import require_prepared
from brimful.data.mixture import parse_sources
from brimful.exporting.formats import require_packages
from brimful.exporting.place import format_of, require_export_place
from brimful.hf.model_folder import ModelFolder
from brimful.runs.places import START, require_options, require_run, require_run_place
from brimful.tables.layouts import find_layout
from brimful.tables.table_files import glance
from brimful.tables.text_files import readable
from brimful.tasks.names import BY_COLUMN, DEFAULT

if TYPE_CHECKING:
    from brimful.exporting.config import ExportConfig
    from brimful.stages.distil_options import CommonOptions
    from brimful.stages.evaluate_config import EvaluateConfig
    from brimful.stages.finetune_config import FinetuneConfig
    from brimful.stages.pretrain_config import PretrainConfig


def check(verb: str, config: Any) -> None:
    """Refuse what cannot work, as far as that is known without a model.

    Raises:
        BrimfulError: what the verb would raise.
    """
    if verb in _CHECKS and "RANK" not in os.environ:
        _CHECKS[verb](verb, config)


def _training(verb: str, config: Any) -> bool:
    """Whether a new run of a verb that trains has its options and a place; False: an old one goes on."""
    if config.resume is not None:
        require_run(Path(config.resume))
        return False
    require_options(config, verb, (*config.NEEDS, "out"))
    require_run_place(Path(config.out), verb)
    return True


def _pretrain(verb: str, config: "PretrainConfig") -> None:
    if not _training(verb, config):
        return
    for source in parse_sources(config.data or ()):
        require_prepared(Path(source.path))
    if config.start_from is not None:
        ModelFolder.open(config.start_from, "encoder")


def _finetune(verb: str, config: "FinetuneConfig") -> None:
    if _training(verb, config):
        _ = config.encoder_folder
        _tables(config, (*config.tables, *config.more_tests))


def _distil(verb: str, config: "CommonOptions") -> None:
    if not _training(verb, config):
        return
    kind = "encoder" if verb == "distil-encoder" else "model"
    options = vars(config)
    for model in (*config.teachers, options.get("student"), options.get("encoder")):
        if model is not None:
            ModelFolder.open(model, kind)
    _files([*config.unlabelled, *options.get("teacher_scores", ())])
    _files(options.get(name) for name in ("train", "dev", "test", "teacher_vectors"))


def _evaluate(verb: str, config: "EvaluateConfig") -> None:
    config.require_complete()
    if not _training(verb, config):
        return
    for encoder in config.encoders:
        ModelFolder.open(encoder, "encoder")
    for text in config.text:
        if not Path(text).exists():
            raise BrimfulError(f"{text} does not exist")
    _tables(config, (config.train, config.dev, config.test))


def _export(verb: str, config: "ExportConfig") -> None:
    if config.format:
        require_packages(config.format)
    _files([config.test, config.calibrate])
    if config.step is None and not (Path(config.run) / START).is_dir():  # of checkpoints there is more to say
        source = ModelFolder.open(config.run, "model")
        require_export_place(Path(config.out), source, format_of(config, source))


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "evaluate": _evaluate,
    "distil": _distil,
    "distil-encoder": _distil,
    "distil-static": _distil,
    "export": _export,
}


def _tables(config: Any, paths: Iterable[str | None]) -> None:
    """Check tables: that they are there, and the first row of those with a column of labels."""
    layout = find_layout(config.layout, config.columns)
    given = [path for path in paths if path is not None]
    _files(given)
    if (config.task or layout.task or DEFAULT) in BY_COLUMN:
        for path in given:
            glance(path, layout)


def _files(paths: Iterable[str | None]) -> None:
    for path in paths:
        if path is not None:
            with readable(Path(path)):
                os.stat(path)
