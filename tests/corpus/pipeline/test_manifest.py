"""The counts of a preparation: what is said of problems in its files."""

from collections.abc import Mapping
from typing import Any

from brimful.corpus.pipeline.manifest import issues_of


def part(issues: Mapping[str, Mapping[str, int]], **examples: Mapping[str, str]) -> dict[str, Any]:
    return {"issues": issues, "issue_examples": examples}


def test_each_of_a_few_files_is_named() -> None:
    texts = [
        part({"a": {"tags": 2}, "b": {"tags": 3, "broken lines": 1}}, a={"tags": "<p>"}),
        part({"a": {"tags": 1}}),
    ]
    assert issues_of(texts) == ["a: tags: 3, such as '<p>'", "b: tags: 3", "b: broken lines: 1"]


def test_what_many_files_have_is_one_line() -> None:
    many = {f"{number}.html": {"is HTML, not text, and is read so": 1} for number in range(400)}
    many["0.html"]["tags"] = 2
    assert issues_of([part(many)]) == [
        "400 files, such as 0.html: is HTML, not text, and is read so: 400",
        "0.html: tags: 2",
    ]
