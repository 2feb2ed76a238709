"""The checks before a run starts, of its options and its folder.

A run directory holds config.yaml, metrics.jsonl, checkpoints/, the model's folder, and summary.json last.
This module loads no torch, so that the command line can make the checks at once.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from brimful.base.errors import BrimfulError, UsageError
from brimful.base.seals import CONFIG, SUMMARY
from brimful.base.storage import AnyPath, require_folder_place

MODELS = ("encoder", "model")
"""The folders of a finished run with its model: an encoder, or a model of a task."""
START = "start"
"""The folder in which a run of pretrain keeps its starting model until it is finished. Resuming the run, or
exporting a checkpoint, then needs no other folder."""


def require_options(config: Any, verb: str, needs: Sequence[str]) -> None:
    """Refuse a new run without the options that it needs, as a UsageError."""
    if all(getattr(config, need) for need in needs):
        return
    flags = ["--" + need.replace("_", "-") for need in needs]
    raise UsageError(f"{verb} needs {', '.join(flags[:-1])} and {flags[-1]}, or --resume RUN")


def require_run_place(out: AnyPath, verb: str) -> None:
    """Refuse a folder that a new run cannot have: it holds something, or is a file."""
    unfinished = f"continue with `brimful {verb} --resume {shlex.quote(str(out))}`, or "
    require_folder_place(Path(out), unfinished=unfinished)


def require_run(directory: AnyPath) -> None:
    """Refuse to resume a folder that is not a run directory: it has no configuration."""
    # With a summary, the run is finished: there may be nothing to resume.
    if not any(Path(directory, name).is_file() for name in (CONFIG, SUMMARY)):
        raise BrimfulError(
            f"{directory} is not a run directory: it has no {CONFIG};"
            " --resume takes the --out of an earlier run"
        )


# The options of a command that name a run to resume (cli/path_checks.py).
RunPath = Annotated[str, require_run]
