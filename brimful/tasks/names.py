"""The names of the tasks, from their files: who lists or looks up names imports no task.

A task is in the file of its name, with underscores for hyphens, which sets `TASK`. The form of its
predictions may stand in a file without torch, which sets `FORM`; either spells the problem_type.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import brimful.tasks
from brimful.base.config import Argument
from brimful.base.errors import BrimfulError, nearest

DEFAULT = "classification"
"""The task where neither --task nor a layout names one, and of runs of an earlier version."""
BY_COLUMN = ("classification", "regression")
"""Tasks whose tables have a column of labels, one in each row."""
_TASK = re.compile("^TASK = ", re.MULTILINE)
_PROBLEM = re.compile(r'^class .*?^    problem_type = "(\w+)"$.*?^(?:TASK|FORM) = ', re.MULTILINE | re.DOTALL)


def task_module(name: str) -> Any:
    """A module of `brimful.tasks`, imported."""
    return import_module(f"brimful.tasks.{name}")


def task_names() -> list[str]:
    """The names of all tasks, sorted."""
    texts = _texts(tuple(brimful.tasks.__path__))
    return sorted(name.replace("_", "-") for name, text in texts if _TASK.search(text))


def problem_types() -> dict[str, str]:
    """The problem_type of each task, and the module of `brimful.tasks` that spells it.

    Raises:
        BrimfulError: two spell the same, so that one would be taken for the other.
    """
    found: dict[str, str] = {}
    for name, text in _texts(tuple(brimful.tasks.__path__)):
        if (spelled := _PROBLEM.search(text)) and found.setdefault(spelled[1], name) != name:
            raise BrimfulError(
                f"brimful.tasks.{found[spelled[1]]} and brimful.tasks.{name} have the same problem_type,"
                f" {spelled[1]!r}: change one"
            )
    return found


@cache
def _texts(folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """The name and the text of each file."""
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.py"))]
    return [(file.stem, file.read_text(encoding="utf-8")) for file in files]


def require_task_name(name: str) -> None:
    """
    Raises:
        BrimfulError: there is no task of that name.
    """
    if name not in task_names():
        raise BrimfulError(f"unknown task {name!r}; {nearest(name, task_names())}")


TASK_HELP = Argument(
    help=f"What to predict: {' or '.join(task_names())}. By default the layout's, or classification."
)
