"""The plan of an evaluation: which encoders, on which texts and tables."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brimful.base.config import build, identity, read_yaml
from brimful.base.console import say, warn
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.folder_lock import FolderLock
from brimful.base.storage import require_folder_place
from brimful.corpus.reading.inputs import files_of
from brimful.corpus.shards import MANIFEST
from brimful.data.examples import check_length
from brimful.evaluation.config import EvaluateConfig
from brimful.hf.config_json import shape_of
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.precision.policy import resolve
from brimful.runs.directory import (
    CONFIG,
    INPUTS,
    SUMMARY,
    check_inputs,
    model_files,
    named_files,
    read_summary,
)
from brimful.runs.folder import RunFolder
from brimful.runs.job import Opened, RunPlan, Summary
from brimful.tables.layouts import find_layout
from brimful.tasks.registry import task_of
from brimful.train.objective import Runtime


@dataclass(frozen=True)
class EvaluatePlan(RunPlan):
    """An evaluation before it starts.

    Attributes:
        folders: of the encoders, by the names that the user gave.
        facts: of each encoder, for the summary.
    """

    config: EvaluateConfig
    folders: dict[str, ModelFolder]
    facts: list[dict[str, Any]]
    runtime: Runtime

    @property
    def files(self) -> dict[str, Path]:
        return _files(self.config, self.folders)


def open_evaluation(config: EvaluateConfig, ranks: World, lock: FolderLock) -> Opened[EvaluateConfig]:
    """Take the folder: free, or with the beginning of the same evaluation, which the same command continues.

    Raises:
        UsageError: there is nothing to compare, or several processes were started.
        BrimfulError: the folder holds anything else.
    """
    config.require_complete()
    assert config.out is not None
    if ranks.size > 1:
        raise UsageError("evaluate runs in one process: start it without torchrun")
    out, kind = Path(config.out), task_of(config.task, find_layout(config.layout, config.columns))
    max_length = config.max_length
    if max_length is None:
        folders = [ModelFolder.open(name, "encoder") for name in config.encoders]
        max_length = min(128, *(shape_of(folder).max_length for folder in folders))
    precision = resolve(config.precision, ranks.device)
    config = replace(config, task=kind.name, max_length=max_length, precision=precision)
    opened = _opened(config, out)
    if opened.summary is not None or config.dry_run:
        return opened
    lock.take(out)
    return _opened(config, out)  # another process may have worked there


def _opened(config: EvaluateConfig, out: Path) -> Opened[EvaluateConfig]:
    again = "the same command"
    if not (out / CONFIG).is_file():
        require_folder_place(out)
        return Opened(config, out, False, again)
    known, asked = identity(build(EvaluateConfig, read_yaml(out / CONFIG))), identity(config)
    if changed := [
        f"{name} {known[name]}, not {value}" for name, value in asked.items() if known[name] != value
    ]:
        raise BrimfulError(
            f"{out} holds an evaluation with other options ({'; '.join(changed)}); choose another --out"
        )
    if not (out / SUMMARY).is_file():
        return Opened(config, out, True, again)
    if not (out / INPUTS).is_file():
        warn(f"{out} does not say which files it read: if they changed since, choose another --out")
    check_inputs(out, _files(config, _open_folders(config)))
    say(f"{out} is finished")
    return Opened(config, out, False, again, read_summary(out))


def plan(config: EvaluateConfig, folder: RunFolder) -> EvaluatePlan:
    """Open the encoders, and refuse what would fail after an hour.

    Raises:
        BrimfulError: an encoder or a text cannot be used.
    """
    runtime = Runtime.of(folder.ranks, config.precision)
    folders = _open_folders(config)
    return EvaluatePlan(config, folders, _facts(config, folders), runtime)


def _open_folders(config: EvaluateConfig) -> dict[str, ModelFolder]:
    return {name: ModelFolder.open(name, "encoder") for name in config.encoders}


def _files(config: EvaluateConfig, folders: dict[str, ModelFolder]) -> dict[str, Path]:
    """What decides the result: tables, texts and encoders."""
    files = named_files(train=config.train, dev=config.dev, test=config.test)
    for text in config.text:
        made = Path(text) / MANIFEST
        paths = [made] if made.is_file() else map(Path, files_of(text, Counter()))
        files |= {str(path): path for path in paths if path.is_file()}
    for name, folder in folders.items():
        files |= model_files(name, folder)
    return files


def outlook(plan: EvaluatePlan) -> Summary:
    """What a dry run returns."""
    return {"dry_run": True, "encoders": list(plan.folders), "text": list(plan.config.text)}


def _facts(config: EvaluateConfig, folders: dict[str, ModelFolder]) -> list[dict[str, Any]]:
    """The size of each encoder."""
    for text in config.text:
        if not Path(text).exists():
            raise BrimfulError(f"{text} does not exist")
    facts = []
    scored = False
    for name, folder in folders.items():
        encoder, head = load_pretrained(folder)
        scored = scored or head is not None
        if encoder.tokenizer is None:
            raise BrimfulError(f"{name} has no tokenizer.json; add it beside config.json")
        shape = encoder.config
        assert config.max_length is not None
        check_length(config.max_length, shape.max_length)
        facts.append(
            {
                "encoder": name,
                "parameters": sum(p.numel() for p in encoder.parameters()),
                "layers": shape.layers,
                "hidden_size": shape.hidden_size,
                "vocabulary": shape.vocabulary_size,
            }
        )
    if config.train is None and not scored:
        raise BrimfulError("no encoder has a masked-LM head, so text says nothing; give --train and --test")
    return facts
