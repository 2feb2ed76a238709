"""What a run reads of its own files: any other content is one line, and never a traceback."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.base.storage import write_json
from brimful.runs.inputs import INPUTS, check_inputs
from brimful.train.metrics import read_metrics

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_inputs(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    run = tmp_path_factory.mktemp("run")
    (run / "table").write_text("text")
    write_json(run / INPUTS, value)
    with pytest.raises(BrimfulError, match=re.escape(str(run))) as error:
        check_inputs(run, {"table": run / "table"})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("damage", ["[" * 100_000, '{"a":' * 100_000, "[]", "0", "{", "\xff"])
def test_metrics(tmp_path: Path, where: int, damage: str) -> None:
    lines = ['{"step": 1}', '{"step": 2}']
    lines.insert(where, damage)
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(lines), encoding="latin-1")
    with pytest.raises(BrimfulError, match=rf"metrics\.jsonl, line {where + 1} is damaged; remove that line"):
        read_metrics(path)
