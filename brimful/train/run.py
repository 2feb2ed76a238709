"""A run directory: config.yaml, metrics.jsonl, checkpoints/, the model's folder, and summary.json last."""

from pathlib import Path
from typing import Any

from brimful.config import write_yaml
from brimful.corpus.shards import MANIFEST
from brimful.errors import BrimfulError
from brimful.storage import sweep, write_json

CONFIG = "config.yaml"
SUMMARY = "summary.json"


def check_new_run(directory: Path, hint: str = "") -> None:
    """Refuse a directory that holds something already.

    Raises:
        BrimfulError: it is a file, holds a run (finished or not), or anything else.
    """
    if directory.is_dir():
        sweep(directory)
    if directory.exists() and not directory.is_dir():
        raise BrimfulError(f"{directory} is a file; choose another --out")
    if (directory / SUMMARY).exists():
        raise BrimfulError(f"{directory} holds a finished run; choose another --out or remove it")
    if (directory / MANIFEST).exists():
        raise BrimfulError(f"{directory} holds a prepared corpus; choose another --out")
    if (directory / CONFIG).exists():
        raise BrimfulError(f"{directory} holds an unfinished run; {hint}choose another --out or remove it")
    if directory.exists() and any(directory.iterdir()):
        raise BrimfulError(f"{directory} is not empty; choose another --out")


def start_run(directory: Path, config: Any) -> None:
    """Create the directory and save the resolved configuration, which is itself a valid --config."""
    write_yaml(directory / CONFIG, config)


def finish_run(directory: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Write summary.json, which says that the run is complete."""
    write_json(directory / SUMMARY, summary)
    return summary


def absolute(path: str) -> str:
    """A path that a saved configuration can be read with from anywhere."""
    return str(Path(path).absolute())


def find_model(path: Path, kind: str) -> Path:
    """The Hugging Face folder that `path` names: itself, or the one a run left in it.

    Args:
        kind: which folder of a run is wanted, "encoder" (pretraining) or "model" (a task model); the other
            one is taken where there is only that.

    Raises:
        BrimfulError: there is none.
    """
    for candidate in (path, path / kind, path / "encoder", path / "model"):
        if (candidate / "config.json").is_file():
            return candidate
    raise BrimfulError(
        f"{path} holds no model: expected config.json and model.safetensors, or a finished run"
    )
