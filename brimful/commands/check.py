"""The verb `brimful check`: oddities in the tables of a task, before anything is trained on them."""

from collections.abc import Sequence
from dataclasses import asdict

from brimful.base.config import verb
from brimful.base.console import pluralise, record_warnings
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.summary import Summary, make_table, with_overview
from brimful.base.types import Values
from brimful.stages.task_options import CheckConfig
from brimful.tables.layouts import find_layout
from brimful.tables.table import Table, label_names_of
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.judging.checks import Finding, check_tables
from brimful.tasks.registry import choose_task


def summarise_check(facts: Values) -> Summary:
    """Return the findings, and a few facts about each file, as a screen shows them."""
    findings, files = facts["findings"], facts["files"]
    result = "nothing found"
    if findings:
        result = pluralise(len(findings), "finding")
    verdict = f"{result} in {pluralise(len(files), 'table')}."
    messages = [[finding["file"], finding["message"]] for finding in findings]
    rows = []
    for file, counts in files.items():
        labels = [f"{name} {count:,}" for name, count in counts.get("labels", {}).items()]
        rows.append([file, f"{counts['rows']:,}", ", ".join(labels)])
    columns = ["File", "Rows", "Labels, in the order of the outputs"]
    tables = [*make_table("Findings", ["File", "Finding"], messages), *make_table("Files", columns, rows)]
    return Summary("Check of tables", verdict, tables)


def count_labels(labels: Sequence[str], table: Table) -> dict[str, int]:
    """Count the rows that have each label, in the order of `labels`, then others by name."""
    counts = dict.fromkeys(labels, 0)
    named = label_names_of(table) or []
    for name in sorted(set[str]().union(*named)):
        counts.setdefault(name, 0)
    for names in named:
        for name in set(names):
            counts[name] += 1
    return counts


@verb(CheckConfig)
def check(config: CheckConfig) -> Values:
    """Find oddities in labelled tables, before training on them. Nothing is written.

    `finetune --dry-run` reports those that depend on an encoder: texts that are cut, unknown tokens.

    Returns:
        `findings`, each with its kind, file, count, message and first rows; and `files`: for each file, the
        number of its rows and the number of rows of each label.

    Raises:
        BrimfulError: a table cannot be read or trained on.
    """
    if not config.files:
        raise UsageError("check needs at least one table: brimful check TRAIN [TEST...]")
    if len(set(config.files)) < len(config.files):
        raise BrimfulError("the same file is given twice; give train, then the tables to compare with it")
    layout = find_layout(config)
    kind = choose_task(config.task, layout)
    tables, findings = [], list[Finding]()
    for path in config.files:
        with record_warnings() as warnings:  # of the reader: they are findings too
            tables.append(TaskFiles(kind, layout).read(path))
        for warning in warnings:
            findings.append(Finding("reading", path, 1, warning.removeprefix(f"{path}: "), []))
    task = kind.from_labels(list(layout.labels)) if layout.labels else kind.from_table(tables[0])
    labels = task.facts.get("labels")
    findings += check_tables(tables, named=labels is not None)
    files: dict[str, Values] = {}
    for table in tables:
        files[str(table.path)] = {"rows": len(table)}
        if labels is not None:
            files[str(table.path)]["labels"] = count_labels(labels, table)
    facts = {"findings": [asdict(finding) for finding in findings], "files": files}
    return with_overview(facts, summarise_check(facts))
