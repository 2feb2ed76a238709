"""The names of the tasks, as their files spell them: who only lists or checks names imports no task."""

import re
from functools import cache
from pathlib import Path

import tyro

import brimful.tasks
from brimful.errors import BrimfulError, nearest
from brimful.retired import refuse_retired

_NAME = re.compile(r'^class .*?^    name = "([\w-]+)"$.*?^TASK = ', re.MULTILINE | re.DOTALL)


def task_names() -> list[str]:
    """The names of all tasks, sorted."""
    return _names(tuple(brimful.tasks.__path__))


@cache
def _names(folders: tuple[str, ...]) -> list[str]:
    files = [file for folder in folders for file in Path(folder).glob("*.py")]
    return sorted(found[1] for file in files if (found := _NAME.search(file.read_text(encoding="utf-8"))))


def require_task_name(name: str) -> None:
    """
    Raises:
        BrimfulError: there is no task of that name.
    """
    if name not in task_names():
        refuse_retired("task", name)
        raise BrimfulError(f"unknown task {name!r}; {nearest(name, task_names())}")


TASK_HELP = tyro.conf.arg(
    help=f"What to predict: {' or '.join(task_names())}. By default the layout's, or classification."
)
