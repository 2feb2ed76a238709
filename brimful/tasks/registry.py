"""Which tasks there are: every module of this package that sets `TASK`."""

import pkgutil
from functools import cache
from importlib import import_module

import brimful.tasks
from brimful.errors import BrimfulError, nearest
from brimful.retired import refuse_retired
from brimful.tables.layouts import OWN_LAYOUT, FileLayout, require_task
from brimful.tasks.task import Task

DEFAULT = "classification"
"""The task where neither --task nor a layout names one, and of runs of an earlier version."""


@cache
def tasks() -> dict[str, type[Task]]:
    """All tasks by name.

    Raises:
        BrimfulError: two tasks have the same name or problem_type, so that one would be taken for the other.
    """
    names = [module.name for module in pkgutil.iter_modules(brimful.tasks.__path__, "brimful.tasks.")]
    modules = {name: getattr(import_module(name), "TASK", None) for name in names}
    found = {name: task for name, task in modules.items() if task is not None}
    for member in ("name", "problem_type"):
        owners: dict[str, str] = {}
        for module, task in found.items():
            value = getattr(task, member)
            if (other := owners.setdefault(value, module)) != module:
                raise BrimfulError(f"{other} and {module} have the same {member}, {value!r}: change one")
    return {task.name: task for task in found.values()}


def find_task(name: str) -> type[Task]:
    """The task that `--task` names.

    Raises:
        BrimfulError: there is no task of that name.
    """
    if name not in tasks():
        refuse_retired("task", name)
        raise BrimfulError(f"unknown task {name!r}; {nearest(name, tasks())}")
    return tasks()[name]


def task_of(name: str | None, layout: FileLayout = OWN_LAYOUT) -> type[Task]:
    """The task that `--task` names; without a name that of the layout, or `DEFAULT`.

    Raises:
        BrimfulError: there is no task of that name, or the layout is for another.
    """
    kind = find_task(name or layout.task or DEFAULT)
    require_task(layout, kind.name)
    return kind
