"""From the name of a task to the task; no other one is imported."""

from brimful.base.errors import BrimfulError
from brimful.tables.layouts import OWN_LAYOUT, FileLayout, require_task
from brimful.tasks.names import DEFAULT, require_task_name, task_module, task_names
from brimful.tasks.task import Task


def find_task(name: str) -> type[Task]:
    """The task that `--task` names.

    Raises:
        BrimfulError: there is no task of that name, or the file of that name holds another.
    """
    require_task_name(name)
    module = name.replace("-", "_")
    found: type[Task] = task_module(module).TASK
    if found.name != name:
        raise BrimfulError(f"tasks/{module}.py holds the task {found.name!r}: name the file after it")
    return found


def known_task(name: str) -> type[Task] | None:
    """The task of a run, if this version knows it."""
    return find_task(name) if name in task_names() else None


def task_of(name: str | None, layout: FileLayout = OWN_LAYOUT) -> type[Task]:
    """The task that `--task` names; without a name that of the layout, or `DEFAULT`.

    Raises:
        BrimfulError: there is no task of that name, or the layout is for another.
    """
    kind = find_task(name or layout.task or DEFAULT)
    require_task(layout, kind.name)
    return kind
