"""The tables of measurements in docs/ and README.md, made from bench/results.

    python -m bench.pages            writes them
    python -m bench.pages --check    exits 1 where a page does not hold what the results give

In a page, a table stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`. The template of the
page, bench/pages/PAGE.md.j2 (without docs/), makes it in the Jinja block NAME from the results:
`step_mini.rows` is the list `rows` of bench/results/step_mini.json. A line under the table names these files
and their machines. A result lists the paths that it measures (`measures`); once the history has changed them,
the line adds "at COMMIT".
"""

import argparse
import json
import operator
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.common.study import by_arm, paired, spread
from bench.precision.tables import results

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(__file__).parent
END = "<!-- end of figures -->"
TABLE = re.compile(rf"<!-- figures: (?P<name>\w+) -->\n(?P<old>.*?){END}", re.DOTALL)
AGE = re.compile(r"(?<=\.json\)) at [0-9a-f]{8}\b")
"""The mark of a result whose code has changed since; without the history, a page keeps the marks it has."""


class FiguresError(Exception):
    """A page, a template or a result is not as it has to be."""


@dataclass
class Results(Mapping[str, Any]):
    """The files of bench/results by their names, which notes the files that a table reads."""

    root: Path
    read: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        path = self.root / "bench/results" / f"{name}.json"
        if not path.is_file():  # a filter or a variable of the template
            raise KeyError(name)
        self.read[name] = json.loads(path.read_text(encoding="utf-8"))
        return self.read[name]

    def __iter__(self) -> Any:
        return (path.stem for path in sorted((self.root / "bench/results").glob("*.json")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def choose(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows whose values are `wanted`; `cell__dtype` is the value `dtype` of the mapping `cell`.

    Raises:
        FiguresError: there are none, so that a line of a table would be lost.
    """
    chosen = rows
    for name, value in wanted.items():
        chosen = [row for row in chosen if reduce(dict.__getitem__, name.split("__"), row) == value]
    if not chosen:
        raise FiguresError(f"none of {len(rows)} rows has {wanted}")
    return chosen


def pick(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """Return the only row whose values are `wanted`, as `choose` takes them.

    Raises:
        FiguresError: there is no such row, or more than one of them.
    """
    chosen = choose(rows, **wanted)
    if len(chosen) > 1:
        raise FiguresError(f"{len(chosen)} of {len(rows)} rows have {wanted}")
    return chosen[0]


def collect(rows: list[Any], path: str) -> list[Any]:
    """Return a value of each row: `points.-1.loss` is the value `loss` of the last of its `points`."""
    keys = [int(key) if key.lstrip("-").isdigit() else key for key in path.split(".")]
    return [reduce(operator.getitem, keys, row) for row in rows]


def scale(values: list[float], factor: float) -> list[float]:
    """Return values times a factor."""
    return [value * factor for value in values]


def ratios(values: list[float], others: list[float]) -> list[float]:
    """Return values divided by those of the same seeds."""
    return [value / other for value, other in zip(values, others, strict=True)]


def number(value: float, digits: int = 0) -> str:
    """Format a number with thousands separated."""
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # without a zero's minus sign


def percent(value: float, digits: int = 0) -> str:
    """Format a share in percent, without the sign."""
    return number(100 * value, digits)


class PageEnvironment(Environment):
    """Jinja, in which `row.update` is the value of that key, also where dictionaries have such a method."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)


def make_environment(templates: Path) -> Environment:
    """Return the environment in which the templates of pages in a folder run."""
    environment = PageEnvironment(
        loader=FileSystemLoader(templates), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(choose=choose, pick=pick, collect=collect, number=number, percent=percent)
    environment.filters.update(by_arm=by_arm, mean=fmean, median=median, spread=spread, paired=paired)
    environment.filters.update(scale=scale, ratios=ratios, scalers=lambda runs, study: results(study, runs))
    return environment


def run_git(root: Path, *arguments: str) -> str | None:
    """Return what git says about a checkout, or None if it can't."""
    run = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else None


def is_outdated(root: Path, commit: str, paths: list[str]) -> bool | None:
    """Whether the history has changed `paths` since `commit`; None where the history is not at hand."""
    if run_git(root, "rev-parse", "--is-shallow-repository") != "false":
        return None
    for path in paths:
        if not (root / path).exists():
            raise FiguresError(f"a result measures {path}, which is not there")
    newer = run_git(root, "rev-list", "-1", f"{commit}..HEAD", "--", *paths)
    return None if newer is None else bool(newer)


def describe_sources(results: dict[str, Any], old: str, folder: str, root: Path) -> str:
    """Return the line under a table: its files by their machines; an outdated one with its commit.

    Args:
        old: the table and the line before, whose marks stay where the history is not at hand.
        folder: the way from the page to the checkout.
    """
    by_machine: dict[str, list[str]] = {}
    for name, result in results.items():
        for key in ("commit", "measures"):
            if key not in result:
                raise FiguresError(f"bench/results/{name}.json names no {key}")
        machine = result.get("device", "cpu")
        if machine == "cpu":
            cores = "one core" if result["cores"] == 1 else f"{result['cores']} cores"
            machine = f"{cores} of {result['cpu']}"
        if "instructions" in result:
            machine += f" with {result['instructions'].split(',')[0]}"
        link = f"[{name}]({folder}bench/results/{name}.json)"
        mark = f" at {result['commit'][:8]}"
        outdated = is_outdated(root, result["commit"], result["measures"])
        if outdated is None:
            outdated = link + mark in old
        by_machine.setdefault(machine, []).append(link + mark if outdated else link)
    return "; ".join(f"{', '.join(links)} ({machine})" for machine, links in by_machine.items())


def render_page(page: Path, environment: Environment, root: Path) -> str:
    """Return the text of a page with its tables as the results give them.

    Raises:
        FiguresError: the page or the template lacks a table of the other, or a result lacks its origin.
    """
    name = page.relative_to(root).as_posix()
    template = environment.get_template(f"{name.removeprefix('docs/')}.j2")
    text = page.read_text(encoding="utf-8")
    placed = [match["name"] for match in TABLE.finditer(text)]
    if sorted(placed) != sorted(template.blocks):
        missing = sorted(set(placed) ^ set(template.blocks)) or placed
        raise FiguresError(f"{page.name} and its template do not have the same tables: {', '.join(missing)}")
    folder = "../" * name.count("/")

    def render(match: re.Match[str]) -> str:
        results = Results(root)
        context = template.new_context(cast("dict[str, Any]", results), shared=True)
        # The template's own text defines its macros, which a block alone would lack.
        context.blocks = {name: [lambda _: iter(())] for name in template.blocks}
        list(template.root_render_func(context))
        table = "".join(template.blocks[match["name"]](context)).strip().replace("|  ", "| ")
        sources = describe_sources(results.read, match["old"], folder, root)
        return f"<!-- figures: {match['name']} -->\n{table}\n\nFrom {sources}.\n{END}"

    return TABLE.sub(render, text)


def write_pages(environment: Environment, root: Path, *, only_check: bool) -> list[str]:
    """Write the pages that have a template, unless `only_check`, and return those that differed.

    The age of a figure changes with every commit, so a page that differs in ages only is not named.
    """
    differing = []
    for template in environment.list_templates(["j2"]):
        name = template.removesuffix(".j2")
        page = root / name if name == "README.md" else root / "docs" / name
        text, old = render_page(page, environment, root), page.read_text(encoding="utf-8")
        if AGE.sub("", text) != AGE.sub("", old):
            differing.append(page.relative_to(root).as_posix())
        if text != old and not only_check:
            page.write_text(text, encoding="utf-8")
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a page differs")
    args = parser.parse_args()
    differing = write_pages(make_environment(TEMPLATES), ROOT, only_check=args.check)
    if args.check and differing:
        print(f"not what bench/results give: {', '.join(differing)}; run python -m bench.pages")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FiguresError as error:
        sys.exit(f"bench.pages: {error}")
