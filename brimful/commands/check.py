"""The verb `brimful check`: what is odd in the tables of a task, before anything is trained on them."""

from dataclasses import asdict, dataclass
from typing import Any

from tokenizers import Tokenizer

from brimful.base.config import verb
from brimful.base.console import counted, recorded_warnings
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.summary import Summary, make_table, with_overview
from brimful.corpus.text.tokenizer import load
from brimful.data.examples import check_length
from brimful.hf.config_json import shape_of
from brimful.hf.model_folder import ModelFolder
from brimful.tables.layouts import find_layout
from brimful.tables.table_files import read_file
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.judging.checks import (
    Finding,
    check_encoding,
    check_lengths,
    check_tables,
    check_unknown,
    described,
    label_counts,
    measure_lengths,
)
from brimful.tasks.judging.config import CheckConfig
from brimful.tasks.registry import task_of


def summarise_check(facts: dict[str, Any]) -> Summary:
    """What was found in the tables, and a few facts about each file."""
    findings, files = facts["findings"], facts["files"]
    found = counted(len(findings), "finding") if findings else "nothing found"
    verdict = f"{found} in {counted(len(files), 'file')}."
    noticed = [[finding["file"], finding["message"]] for finding in findings]
    rows = []
    for file, known in files.items():
        tokens = described(known["tokens"]) if "tokens" in known else ""
        labels = ", ".join(f"{name} {count:,}" for name, count in known.get("labels", {}).items())
        rows.append([file, f"{known['rows']:,}", tokens, labels])
    columns = ["File", "Rows", "Tokens", "Labels, in the order of the outputs"]
    tables = [*make_table("Findings", ["File", "Finding"], noticed), *make_table("Files", columns, rows)]
    return Summary("Check of tables", verdict, tables)


@verb(CheckConfig)
def check(config: CheckConfig) -> dict[str, Any]:
    """Say what is odd in labelled tables, before training on them. Nothing is written.

    Returns:
        `findings`, each with its kind, file, count, message and first rows; and of each of the `files` the
        number of rows, the rows of each label and, with an encoder, quantiles of the length in tokens.

    Raises:
        BrimfulError: a table cannot be read or trained on, or the folder holds no encoder and tokenizer.
    """
    if not config.files:
        raise UsageError("check needs at least one table: brimful check TRAIN [TEST...]")
    if len(set(config.files)) < len(config.files):
        raise BrimfulError("the same file is given twice; give train, then the tables to compare with it")
    layout = find_layout(config.layout, config.columns)
    kind = task_of(config.task, layout)
    reader = _reader(config)
    tables, found = [], list[Finding]()
    for path in config.files:
        with recorded_warnings() as messages:
            tables.append(read_file(kind, path, labelled=True, layout=layout))
        found += [Finding("reading", path, 1, line.removeprefix(f"{path}: "), []) for line in messages]
    train, *others = tables
    task = kind.from_labels(list(layout.labels)) if layout.labels else kind.from_table(train)
    labels = task.facts.get("labels")
    found += check_tables(train, others, labels)[0]
    files: dict[str, Any] = {str(table.path): {"rows": len(table)} for table in tables}
    if labels is not None:
        for table in tables:
            files[str(table.path)]["labels"] = label_counts(labels, table)
    if reader is not None:
        overlap = config.overlap
        if overlap is None and kind.overlap is not None:
            overlap = min(kind.overlap, reader.max_length // 4)
        encode(
            train.take([]), reader.tokenizer, reader.max_length, overlap=overlap
        )  # refuses windows that cannot be
        before: list[Encoded] = []
        for table in tables:
            lengths = measure_lengths(table, reader.tokenizer)
            found += check_lengths(table, lengths, reader.max_length, reader.longest, overlap)
            found += check_unknown(table, lengths)
            found += check_encoding(task, table, train, before, reader.tokenizer, reader.max_length, overlap)
            files[str(table.path)]["tokens"] = lengths.facts
    facts = {"findings": [asdict(finding) for finding in found], "files": files}
    return with_overview(facts, summarise_check(facts))


@dataclass(frozen=True)
class _Reader:
    """What an encoder reads of a text.

    Attributes:
        max_length: the most tokens of an example.
        longest: what the encoder takes.
    """

    tokenizer: Tokenizer
    max_length: int
    longest: int


def _reader(config: CheckConfig) -> _Reader | None:
    """What `config.encoder` reads; None without it: then tokens are not checked."""
    if config.encoder is None:
        if config.max_length is not None or config.overlap is not None:
            raise UsageError(
                "--max-length and --overlap count tokens: give --encoder, whose tokenizer makes them"
            )
        return None
    folder = ModelFolder.open(config.encoder, "encoder")
    longest = shape_of(folder).max_length
    max_length = min(128, longest) if config.max_length is None else config.max_length
    check_length(max_length, longest)
    return _Reader(load(folder.path), max_length, longest)
