"""Which tasks there are: every module of this package that sets `TASK`."""

import pkgutil
from functools import cache
from importlib import import_module

import brimful.tasks
from brimful.errors import BrimfulError, nearest
from brimful.tasks.task import Task

DEFAULT = "classification"
"""The task of a run whose configuration names no task, such as a run of an earlier version."""


@cache
def tasks() -> dict[str, type[Task]]:
    """All tasks by name."""
    names = [module.name for module in pkgutil.iter_modules(brimful.tasks.__path__, "brimful.tasks.")]
    found = [getattr(import_module(name), "TASK", None) for name in names]
    return {task.name: task for task in found if task is not None}


def find_task(name: str) -> type[Task]:
    """The task that `--task` names.

    Raises:
        BrimfulError: there is no task of that name.
    """
    if name not in tasks():
        raise BrimfulError(f"unknown task {name!r}; {nearest(name, tasks())}")
    return tasks()[name]
