"""Files in bench/results: each names a commit of the history, or says that it is restamped and why."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from builders.bench import ROOT

FILES = sorted(ROOT.glob("bench/results/**/*.json"))
SHORT, HASH = 7, re.compile(r"\b[0-9a-f]{7,40}\b")


@pytest.fixture(scope="module")
def history():
    """The commits that lead to this one, also by their first characters."""
    git = ["git", "-C", str(ROOT)]
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        pytest.skip("the history is not here")
    found = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=True)
    commits = found.stdout.split()
    return {commit[:length] for commit in commits for length in range(SHORT, 41)}


def named(value: Any, below: bool = False) -> Iterator[str]:
    """The hashes in the fields `commit` and `commits`, at any depth."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from named(each, below or key in ("commit", "commits"))
    elif isinstance(value, list):
        for each in value:
            yield from named(each, below)
    elif below and isinstance(value, str):
        yield from HASH.findall(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_result_names_a_commit_of_the_history(path, history):
    record = json.loads(path.read_text(encoding="utf-8"))
    facts = next((each for each in (record, record.get("facts", {})) if "restamped" in each), None)
    if facts is not None:
        assert facts["restamped"] is True
        assert len(facts["restamped_why"].split()) > 3
        assert facts["commit"] in history
    else:
        commits = set(named(record))
        assert commits
        assert commits <= history
