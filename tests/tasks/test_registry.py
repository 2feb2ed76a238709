"""Which tasks there are, and what finding one loads."""

import subprocess
import sys

import pytest

from brimful.base.errors import BrimfulError
from brimful.tasks.registry import PROBLEM_TYPES, TASKS, find_form, find_task


def test_each_task_has_the_name_and_the_form_of_the_registry() -> None:
    found = [find_task(name) for name in TASKS]
    assert [task.name for task in found] == list(TASKS)
    assert {task.problem_type for task in found} == set(PROBLEM_TYPES)
    for task in found:
        form = find_form(task.problem_type)
        assert issubclass(task, form)
        assert (form.name, form.problem_type) == (task.name, task.problem_type)


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    with pytest.raises(BrimfulError, match="unknown task 'clasification'; did you mean 'classification'"):
        find_task("clasification")


def test_forms_load_no_torch_and_a_task_no_other_task() -> None:
    code = """
import sys
from brimful.tasks.registry import PROBLEM_TYPES, find_form, find_task
for name in PROBLEM_TYPES:
    find_form(name)
print({"torch", "pyarrow", "sklearn", "transformers"} & set(sys.modules))
find_task("classification")
print("scipy.stats" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "set()\nFalse\n"
