"""Which tasks there are, and that none hides another."""

import re
import sys
from pathlib import Path

import pytest

import brimful.tasks
from brimful.errors import BrimfulError
from brimful.tasks import registry

COPY = "from brimful.tasks.regression import Regression\n\nclass TASK(Regression):\n    {0} = {1!r}\n"


@pytest.mark.parametrize(
    ("changed", "value", "message"),
    [
        ("name", "a_copy", "brimful.tasks.regression and brimful.tasks.a_copy have the same problem_type"),
        ("problem_type", "a_copy", "brimful.tasks.regression and brimful.tasks.a_copy have the same name"),
    ],
)
def test_two_tasks_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, value: str, message: str
) -> None:
    (tmp_path / "a_copy.py").write_text(COPY.format(changed, value), encoding="utf-8")
    monkeypatch.setattr(brimful.tasks, "__path__", [*brimful.tasks.__path__, str(tmp_path)])
    registry.tasks.cache_clear()
    try:
        with pytest.raises(BrimfulError, match=f"{re.escape(message)}, 'regression'") as error:
            registry.find_task("regression")
        assert "\n" not in str(error.value)
    finally:
        sys.modules.pop("brimful.tasks.a_copy", None)
        registry.tasks.cache_clear()
