"""The tables of the pages are what bench/results give."""

import json
import subprocess
from pathlib import Path

import pytest

from bench.pages.__main__ import ROOT, TEMPLATES, FiguresError, make_environment, write_pages

RESULT = {
    "measures": ["code.py"],
    "cpu": "a processor",
    "cores": 2,
    "rows": [{"cell": {"size": 1}, "update": 3.14159}, {"cell": {"size": 2}, "update": 2718.28}],
}


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one page, its template, and a result at the first commit."""
    root = tmp_path / "checkout"
    for folder in ("docs", "bench/results", "templates"):
        (root / folder).mkdir(parents=True)
    row = "{{ (step.rows | pick(cell__size=2)).update | number(1) }}"
    (root / "templates/page.md.j2").write_text(f"{{% block speed %}}\n| {row} |\n{{% endblock %}}\n")
    (root / "docs/page.md").write_text("before\n<!-- figures: speed -->\n<!-- end of figures -->\nafter\n")
    (root / "code.py").write_text("1\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    result = RESULT | {"commit": git(root, "rev-parse", "HEAD")}
    (root / "bench/results/step.json").write_text(json.dumps(result))
    return root


def write(root: Path, *, only_check: bool = False) -> list[str]:
    return write_pages(make_environment(root / "templates"), root, only_check=only_check)


def test_the_pages_of_brimful_are_what_its_results_give() -> None:
    assert write_pages(make_environment(TEMPLATES), ROOT, only_check=True) == []


def test_a_table_comes_from_its_result(checkout: Path) -> None:
    page = checkout / "docs/page.md"
    before = page.read_text()
    assert write(checkout, only_check=True) == ["docs/page.md"]
    assert page.read_text() == before
    write(checkout)
    source = "From [step](../bench/results/step.json) (2 cores of a processor)."
    table = f"<!-- figures: speed -->\n| 2,718.3 |\n\n{source}\n<!-- end of figures -->"
    assert page.read_text() == f"before\n{table}\nafter\n"
    assert write(checkout, only_check=True) == []


def test_a_figure_whose_code_has_changed_names_its_commit(checkout: Path) -> None:
    page = checkout / "docs/page.md"
    commit = git(checkout, "rev-parse", "--short=8", "HEAD")
    (checkout / "code.py").write_text("2\n")
    git(checkout, "commit", "-qam", "second")
    write(checkout)
    marked = page.read_text()
    assert f"step.json) at {commit} (2 cores" in marked
    # Without the history, the mark stays; with a fresh result it goes, and neither is a reason to fail.
    (checkout / ".git").rename(checkout / "away")
    write(checkout)
    assert page.read_text() == marked
    (checkout / "away").rename(checkout / ".git")
    result = RESULT | {"commit": git(checkout, "rev-parse", "HEAD")}
    (checkout / "bench/results/step.json").write_text(json.dumps(result))
    assert write(checkout, only_check=True) == []
    write(checkout)
    assert commit not in page.read_text()


REFUSED = {
    "a table of no template": ("docs/page.md", "figures: speed", "figures: size", "size, speed"),
    "no such row": ("templates/page.md.j2", "cell__size=2", "cell__size=3", "none of 2 rows"),
    "no origin": ("bench/results/step.json", '"measures"', '"measured"', "step.json names no measures"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_origin_is_refused(checkout: Path, case: str) -> None:
    name, old, new, words = REFUSED[case]
    file = checkout / name
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(FiguresError, match=words):
        write(checkout)
