"""Layouts of task files: the meaning of columns, the set of labels, the metric that decides.

Files of GLUE (Wang et al., 2019) and CLUE (Xu et al., 2020) are read as they are downloaded. Labels have the
names of the files, and the order of Hugging Face's `datasets`.
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


FileRow = dict[str, Any]
"""A row of a file: its values by column."""
TablePaths = tuple[str, str | None, str | None]
"""Paths of train, and of dev and test if they have tables of their own."""
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
    """The unit of the offsets of spans and answers: characters, units of UTF-16, or bytes of UTF-8."""


@dataclass(frozen=True, kw_only=True)
class LabelOptions(TableOptions):
    """The options of every verb that reads tables with labels."""

    columns: Columns = OWN
    """Other names of the columns."""


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """How the files of a task are laid out.

    Attributes:
        name: its name in `--layout`; empty for the user's own tables.
        task: the only task that reads it; empty for all.
        form: .tsv (tab-separated, without quotes) or .jsonl, if the names of the files do not say it; else
            empty.
        bare: the columns of files that have no header.
        labels: all classes in their order; empty if the training table tells them.
        unsure: labels of rows that nobody agreed on. Such rows are left out.
        primary: the metric that decides; empty for the task's own.
        rewrite: makes the columns of a row of JSON.
        dialect: how rows are divided; the files decide what it leaves open.
        offsets: the unit that offsets count.
    """

    name: str = ""
    task: str = ""
    columns: Columns = OWN
    form: Literal["", ".tsv", ".jsonl"] = ""
    bare: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    primary: str = ""
    rewrite: Callable[[FileRow], FileRow] | None = None
    dialect: DialectOptions = DialectOptions()
    offsets: OffsetUnit = "characters"

    @property
    def pairs(self) -> bool:
        """Whether every row must have a second text: its column was named."""
        return self.columns.text_b != OWN.text_b


OWN_LAYOUT = FileLayout()


def _glue(name: str, text: str, text_b: str = OWN.text_b, label: str = OWN.label, **more: Any) -> FileLayout:
    values = {"task": "classification", "labels": ("0", "1")} | more
    columns = Columns(text=text, text_b=text_b, label=label)
    dialect = DialectOptions(delimiter="tab", quote="none")
    return FileLayout(name=f"glue/{name}", columns=columns, form=".tsv", dialect=dialect, **values)


def _clue(name: str, labels: tuple[str, ...], columns: Columns = OWN, **more: Any) -> FileLayout:
    values = {"task": "classification", "labels": labels} | more
    return FileLayout(name=f"clue/{name}", columns=columns, form=".jsonl", **values)


def _list_spans(row: FileRow) -> FileRow:
    """Rewrite a row of CLUENER, which has spans by label and text, with their last characters included."""
    spans = []
    for label, entities in row.get("label", {}).items():
        for text, places in entities.items():
            for start, end in places:
                spans.append([start, end + 1, label, text])
    return row | {"spans": spans}


_SENTENCES = ("sentence1", "sentence2")
_INFERENCE = ("entailment", "neutral", "contradiction")
_ENTAILED = ("entailment", "not_entailment")
_NO_MAJORITY = ("-",)  # the label of rows that nobody agreed on
_PAIR = Columns(text="sentence1", text_b="sentence2")
_ONE = Columns(text="sentence")
# The numbers of Toutiao's categories.
_NEWS = tuple(str(number) for number in range(100, 117) if number not in (105, 111))

_ALL = (
    _glue("cola", "sentence", primary="matthews", bare=("source", "label", "mark", "sentence")),
    _glue("sst-2", "sentence", bare=("sentence", "label")),
    _glue("mrpc", "#1 String", "#2 String", "Quality", primary="positive_f1"),
    _glue("sts-b", *_SENTENCES, "score", labels=(), task="regression", primary="pearson"),
    _glue("qqp", "question1", "question2", "is_duplicate", primary="positive_f1"),
    _glue("mnli", *_SENTENCES, "gold_label", labels=_INFERENCE, unsure=_NO_MAJORITY),
    _glue("qnli", "question", "sentence", labels=_ENTAILED),
    _glue("rte", *_SENTENCES, labels=_ENTAILED),
    _glue("wnli", *_SENTENCES),
    _glue("ax", *_SENTENCES, labels=_INFERENCE, unsure=_NO_MAJORITY, primary="matthews"),
    _clue("afqmc", ("0", "1"), _PAIR),
    _clue("tnews", _NEWS, _ONE),
    _clue("iflytek", tuple(map(str, range(119))), _ONE),
    _clue("cmnli", ("neutral", "entailment", "contradiction"), _PAIR, unsure=_NO_MAJORITY),
    _clue("ocnli", ("neutral", "entailment", "contradiction"), _PAIR, unsure=_NO_MAJORITY),
    FileLayout(name="clue/cluener", task="token-classification", rewrite=_list_spans),
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
    """Return the layout that `--layout` names, or one of the columns that the options name.

    Raises:
        BrimfulError: there is no such layout, or it has columns of its own.
    """
    name, columns = options.layout, Columns(**vars(options.columns))  # some verbs read no labels
    if name is None:
        return FileLayout(columns=columns, dialect=options.read, offsets=options.offsets)
    if name not in LAYOUTS:
        raise BrimfulError(f"unknown layout {name!r}; {suggest_name(name, LAYOUTS)}")
    if columns != OWN:
        raise BrimfulError(f"the layout {name} names its columns: leave out --columns or --layout")
    layout = LAYOUTS[name]
    if options.read != DialectOptions():
        layout = replace(layout, dialect=options.read)
    if options.offsets != OWN_LAYOUT.offsets:
        layout = replace(layout, offsets=options.offsets)
    return layout
