"""Which tasks there are, and that none hides another."""

import subprocess
import sys
from pathlib import Path

import pytest

import brimful.tasks
from brimful.base.errors import BrimfulError
from brimful.tasks.names import problem_types, task_names
from brimful.tasks.registry import find_task

TASK = 'class Grades:\n    name = "{0}"\n    problem_type = "{1}"\n\n\nTASK = Grades\n'


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a file of the package."""

    def write(name: str, problem_type: str) -> None:
        (tmp_path / "a_copy.py").write_text(TASK.format(name, problem_type), encoding="utf-8")
        monkeypatch.setattr(brimful.tasks, "__path__", [*brimful.tasks.__path__, str(tmp_path)])

    yield write
    sys.modules.pop("brimful.tasks.a_copy", None)


def test_two_tasks_that_cannot_be_told_apart_are_refused(written):
    written("a-copy", "regression")
    with pytest.raises(BrimfulError) as error:
        problem_types()
    assert str(error.value) == (
        "brimful.tasks.values and brimful.tasks.a_copy have the same problem_type, 'regression': change one"
    )


def test_a_task_is_in_the_file_of_its_name(written):
    written("grades", "grades")
    assert "a-copy" in task_names()
    with pytest.raises(BrimfulError, match=r"tasks/a_copy\.py holds the task 'grades'"):
        find_task("a-copy")


def test_each_task_has_the_names_of_its_files():
    found = [find_task(name) for name in task_names()]
    assert [task.name for task in found] == task_names()
    assert {task.problem_type for task in found} == set(problem_types())


def test_forms_load_no_torch_and_a_task_no_other_task():
    code = """
import sys
from importlib import import_module
from brimful.tasks.names import problem_types
for name in problem_types().values():
    assert issubclass(import_module(f"brimful.tasks.{name}").FORM, object)
print({"torch", "pyarrow", "sklearn", "transformers"} & set(sys.modules))
from brimful.tasks.registry import find_task
find_task("classification")
print("scipy.stats" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "set()\nFalse\n"
