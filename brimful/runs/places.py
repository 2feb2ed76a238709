"""What a training verb needs before it may start: its options, and a place for its run."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError, UsageError
from brimful.base.storage import require_folder_place

CONFIG = "config.yaml"
START = "start"
"""Where a run of pretrain keeps its starting model until it is finished. So resuming the run, or exporting a
checkpoint, needs no other folder."""


def require_options(config: Any, verb: str, needs: Sequence[str]) -> None:
    """Refuse a new run without what it needs.

    Args:
        needs: names of options, "A or B" for one of two.

    Raises:
        UsageError: one is missing.
    """
    if not all(has(config, need) for need in needs):
        options = [" or ".join(f"--{n.replace('_', '-')}" for n in need.split(" or ")) for need in needs]
        several = ", ".join(options[:-1]) + (" and " if len(options) > 1 else "")
        raise UsageError(f"{verb} needs {several}{options[-1]}, or --resume RUN")


def has(config: Any, need: str) -> bool:
    """Whether a configuration has an option, or one of two."""
    return any(getattr(config, name) for name in need.split(" or "))


def require_run_place(out: Path, verb: str) -> None:
    """Refuse a folder that no new run may have.

    Raises:
        BrimfulError: it holds something, or is none.
    """
    unfinished = f"continue with `brimful {verb} --resume {shlex.quote(str(out))}`, or "
    require_folder_place(out, unfinished=unfinished)


def require_run(directory: Path) -> None:
    """Refuse to resume what is no run.

    Raises:
        BrimfulError: it has no configuration.
    """
    if not (directory / CONFIG).is_file():
        raise BrimfulError(
            f"{directory} is not a run directory: it has no {CONFIG};"
            " --resume takes the --out of an earlier run"
        )
