"""Layouts of task files: which column is what, which labels there are, what decides.

Files of GLUE (Wang et al., 2019) and CLUE (Xu et al., 2020) are read as they are downloaded. The labels are
those of the files, in the order of Hugging Face's `datasets`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from brimful.base.errors import BrimfulError, suggest_name
from brimful.corpus.reading.dialects import DialectOptions


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """Which columns of texts are read."""

    text: str = "text"
    """Name of the column of texts, or of the first texts of pairs."""
    text_b: str = "text_b"
    """Name of the column of second texts."""


@dataclass(frozen=True, kw_only=True)
class Columns(TextColumns):
    """Which columns of a table are read."""

    label: str = "label"
    """Name of the column of labels."""


OWN = Columns()
"""The columns of a table without options."""

OffsetUnit = Literal["characters", "utf-16", "bytes"]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of every verb that reads tables."""

    columns: TextColumns = TextColumns()
    """Other names of the columns."""
    layout: str | None = None
    """How the files are laid out: glue/mnli, squad ... It says columns, labels, task and metric."""
    read: DialectOptions = DialectOptions()
    """How the rows of .csv and .tsv files are divided."""
    offsets: OffsetUnit = "characters"
    """What the offsets of spans and answers count: characters, units of UTF-16, or bytes of UTF-8."""


@dataclass(frozen=True, kw_only=True)
class LabelOptions(TableOptions):
    """The options of every verb that reads tables with labels."""

    columns: Columns = OWN
    """Other names of the columns."""


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """How the files of a task are laid out.

    Attributes:
        name: what `--layout` calls it; empty for the user's own tables.
        task: the only task that reads it; empty for all.
        form: of the files, if their names do not say it (.tsv, .csv, .jsonl, .parquet): tab-separated without
            quotes, or JSON lines.
        bare: the columns of files that have no header.
        labels: all classes in their order; empty if the training table tells them.
        unsure: labels of rows that nobody agreed on. Such rows are left out.
        primary: the metric that decides; empty for the task's own.
        rewrite: makes the columns of a row of JSON.
        dialect: how rows are divided, where the files shall not decide it.
        offsets: the unit that offsets count.
        answers_are_classes: whether Prodigy's answers are the labels; None: the file decides it.
    """

    name: str = ""
    task: str = ""
    columns: Columns = OWN
    form: Literal["", ".tsv", ".jsonl"] = ""
    bare: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    primary: str = ""
    rewrite: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    dialect: DialectOptions = DialectOptions()
    offsets: OffsetUnit = "characters"
    answers_are_classes: bool | None = None

    @property
    def pairs(self) -> bool:
        """Whether every row must have a second text: its column was named."""
        return self.columns.text_b != OWN.text_b

    def require_own_columns(self, task: str) -> None:
        """Refuse named columns, for a task whose files have none.

        Raises:
            BrimfulError: a column is named.
        """
        if self.columns != OWN:
            raise BrimfulError(f"the files of {task} have keys and columns of their own: leave out --columns")


OWN_LAYOUT = FileLayout()


def _glue(
    name: str,
    text: str,
    text_b: str = OWN.text_b,
    label: str = OWN.label,
    *,
    labels: tuple[str, ...] = ("0", "1"),
    task: str = "classification",
    primary: str = "",
    bare: tuple[str, ...] = (),
) -> FileLayout:
    columns = Columns(text=text, text_b=text_b, label=label)
    return FileLayout(
        name=f"glue/{name}",
        task=task,
        columns=columns,
        form=".tsv",
        dialect=DialectOptions(delimiter="tab", quote="none"),
        bare=bare,
        labels=labels,
        unsure=("-",) if len(labels) == 3 else (),
        primary=primary,
    )


def _clue(name: str, labels: tuple[str, ...], columns: Columns = OWN, **more: Any) -> FileLayout:
    known: dict[str, Any] = {"name": f"clue/{name}", "task": "classification", "form": ".jsonl"}
    return FileLayout(columns=columns, labels=labels, **known, **more)


def _marked_names(row: dict[str, Any]) -> dict[str, Any]:
    """A row of CLUE's WSC: the name stands between underscores, the pronoun in brackets (as in CLUE's code).

    Raises:
        KeyError, TypeError: the row has no target.
    """
    text, target = row["text"], row["target"]
    marks = []
    for number, (left, right) in ((1, "__"), (2, "[]")):
        start, part = int(target[f"span{number}_index"]), target[f"span{number}_text"]
        marks.append((start, start + len(part), left, right))
    for start, end, left, right in sorted(marks, reverse=True):
        text = text[:start] + left + text[start:end] + right + text[end:]
    return row | {"text": text}


def _joined_keywords(row: dict[str, Any]) -> dict[str, Any]:
    """A row of CLUE's CSL: the keywords of a paper, and its abstract."""
    return row | {"keyword": " ".join(row["keyword"])}


def _spans(row: dict[str, Any]) -> dict[str, Any]:
    """A row of CLUENER, whose spans stand by label and text, with their last characters included.

    Raises:
        KeyError, TypeError, ValueError: a label has no places.
    """
    found = [
        [start, end + 1, label, text]
        for label, entities in row.get("label", {}).items()
        for text, places in entities.items()
        for start, end in places
    ]
    return row | {"spans": found}


_SENTENCES = ("sentence1", "sentence2")
_INFERENCE = ("entailment", "neutral", "contradiction")
_ENTAILED = ("entailment", "not_entailment")
_PAIR = Columns(text="sentence1", text_b="sentence2")
_ONE = Columns(text="sentence")
_NEWS = tuple(str(number) for number in range(100, 117) if number not in (105, 111))

_ALL = (
    _glue("cola", "sentence", primary="matthews", bare=("source", "label", "mark", "sentence")),
    _glue("sst-2", "sentence", bare=("sentence", "label")),
    _glue("mrpc", "#1 String", "#2 String", "Quality", primary="positive_f1"),
    _glue("sts-b", *_SENTENCES, "score", labels=(), task="regression", primary="pearson"),
    _glue("qqp", "question1", "question2", "is_duplicate", primary="positive_f1"),
    _glue("mnli", *_SENTENCES, "gold_label", labels=_INFERENCE),
    _glue("qnli", "question", "sentence", labels=_ENTAILED),
    _glue("rte", *_SENTENCES, labels=_ENTAILED),
    _glue("wnli", *_SENTENCES),
    _glue("ax", *_SENTENCES, labels=_INFERENCE, primary="matthews"),
    _clue("afqmc", ("0", "1"), _PAIR),
    _clue("tnews", _NEWS, _ONE),
    _clue("iflytek", tuple(map(str, range(119))), _ONE),
    _clue("cmnli", ("neutral", "entailment", "contradiction"), _PAIR, unsure=("-",)),
    _clue("ocnli", ("neutral", "entailment", "contradiction"), _PAIR, unsure=("-",)),
    _clue("wsc", ("true", "false"), rewrite=_marked_names),
    _clue("csl", ("0", "1"), Columns(text="keyword", text_b="abst"), rewrite=_joined_keywords),
    FileLayout(name="clue/cluener", task="token-classification", rewrite=_spans),
    # The starts in CMRC's files were counted by a program whose texts are UTF-16.
    FileLayout(name="clue/cmrc", task="question-answering", primary="lcs_f1", offsets="utf-16"),
    FileLayout(name="squad", task="question-answering"),
)
LAYOUTS = {layout.name: layout for layout in _ALL}


def require_task(layout: FileLayout, task: str) -> None:
    """Refuse a layout of another task.

    Raises:
        BrimfulError: `task` does not read it.
    """
    if layout.task and layout.task != task:
        raise BrimfulError(f"the layout {layout.name} is for the task {layout.task}, not {task}")


def find_layout(options: TableOptions) -> FileLayout:
    """The layout that `--layout` names, or one of the columns that the options name.

    Raises:
        BrimfulError: there is no such layout, or it has columns of its own.
    """
    name, columns = options.layout, Columns(**vars(options.columns))
    if name is None:
        return FileLayout(columns=columns, dialect=options.read, offsets=options.offsets)
    if name not in LAYOUTS:
        raise BrimfulError(f"unknown layout {name!r}; {suggest_name(name, LAYOUTS)}")
    if columns != OWN:
        raise BrimfulError(f"the layout {name} names its columns: leave out --columns or --layout")
    layout = LAYOUTS[name]
    dialect = layout.dialect if options.read == DialectOptions() else options.read
    offsets = layout.offsets if options.offsets == OWN_LAYOUT.offsets else options.offsets
    return replace(layout, dialect=dialect, offsets=offsets)
