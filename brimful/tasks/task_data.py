"""The tables of a task as examples: encoded, split, in updates, and evaluated between updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray

from brimful.base.console import warn
from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, hash_words
from brimful.base.types import Numbers
from brimful.data.example_stream import ExampleStream
from brimful.data.examples import Examples, check_length
from brimful.hf.folders import require_tokenizer
from brimful.model.encoder import Encoder
from brimful.objectives.supervised import Evaluate, no_evaluation
from brimful.tables.layouts import TablePaths
from brimful.tables.table import Table, require_pairs
from brimful.tables.table_files import read_sources
from brimful.tasks.cached_tables import TaskFiles, cache_groups
from brimful.tasks.encoded_tables import Encoded, warn_of_lost_ends
from brimful.tasks.row_groups import MIN_DIFFERENT_TEXTS, cut_rows
from brimful.tasks.task import Task, TaskHead
from brimful.tasks.task_model import TaskModel
from brimful.train.objective import Runtime

CUT_SHARE = 0.2
"""The proportion of a table that becomes test, and of train that becomes dev for a choice."""
MIN_PART_OF_CUT = 0.25
"""The least proportion of its share that a part may have: fewer rows would measure nothing."""


@dataclass(frozen=True)
class TaskData:
    """A task and its tables, encoded.

    Attributes:
        fit: rows that the trials of learning rates train on; all of train if there is nothing to compare.
        dev: rows that trials are compared on.
        train: all rows for the final training.
        leaked: number of distinct test texts that are also in the training table.
        more_tests: other tables that the finished model is measured on.
    """

    task: Task
    fit: Encoded
    dev: Encoded | None
    train: Encoded
    test: Encoded
    leaked: int
    more_tests: tuple[Encoded, ...] = ()


def load_task_data(
    files: TaskFiles,
    encoder: Encoder,
    tables: TablePaths,
    *,
    max_length: int,
    overlap: int | None = None,
    held_out: Mapping[str, ndarray] | None = None,
    more_tests: Sequence[str] = (),
    metric: str | None = None,
    group: str | None = None,
) -> TaskData:
    """Read and encode the tables, each once (`cached_tables`), and warn if test texts are in train.

    Args:
        files: the task, whose labels come from the layout or the training table, and how it reads files.
        tables: paths of train, dev and test; without a path, test is cut from train (`cut_part`).
        overlap: tokens that windows of a long text share; None cuts the text.
        held_out: int64, rows of the training table that are `test` or `dev`, from 0.
        more_tests: paths of other tables to measure on.
        metric: the primary metric; None: the layout's, or the task's.
        group: the column of train that names the source of a row; see `cut_part`.

    Raises:
        BrimfulError: a table is missing or malformed, a target is wrong, or train is too small to cut.
    """
    train_path, dev_path, test_path = tables
    layout, ranks, held_out = files.layout, files.ranks, held_out or {}
    train = files.read(train_path)
    task = files.kind.from_labels(list(layout.labels)) if layout.labels else files.kind.from_table(train)
    primary = metric or layout.primary
    if primary:
        task = task.with_primary(primary)
    leaked = 0
    if test_path is not None:
        test = files.read(test_path)
        leaked = len(np.intersect1d(train.fingerprints, test.fingerprints))
        if leaked and ranks.is_main:
            warn(
                f"{leaked} texts of {test.path} are also in {train.path}, so test metrics are too optimistic"
            )
    tokenizer = require_tokenizer(encoder, "the encoder's folder")
    check_length(max_length, encoder.config.max_length)

    def encode_file(path: str) -> Encoded:
        data = files.encode(task, path, tokenizer, max_length, overlap)
        require_pairs(data.table, train.second is not None, train_path)
        if ranks.is_main:
            warn_of_lost_ends(data.examples.cut, len(data), path, max_length)
        return data

    # Test is cut before dev, so that all runs on a table have the same test, with any dev.
    train_data = whole = encode_file(train_path)
    if group is not None:
        sources = read_sources(whole.table, group, layout)
        train_data = whole = replace(whole, table=replace(whole.table, sources=sources))
    if test_path is not None:
        test_data = encode_file(test_path)
    elif "test" in held_out:
        train_data, test_data = split_rows(train_data, held_out["test"], "test")
    else:
        train_data, test_data = cut_part(task, train_data, "test", ranks=ranks)
    others, dev_data = [test_data], None
    if "dev" in held_out:
        train_data, dev_data = split_rows(train_data, held_out["dev"], "dev")
    elif dev_path is not None:
        dev_data = encode_file(dev_path)
    if dev_data is not None:
        others.append(dev_data)
    more_data = tuple(map(encode_file, more_tests))
    task = task.learn(whole, [*others, *more_data] if ranks.is_main else [])  # one rank warns
    return TaskData(task, train_data, dev_data, train_data, test_data, leaked, more_data)


class TooFewRowsError(BrimfulError):
    """A table has too few different texts, or rows of a label, to cut a part from."""


def hold_out(data: TaskData, share: float = CUT_SHARE, ranks: World = SINGLE_RANK) -> TaskData:
    """Return the same data, with a share of train as `dev` and the other rows as `fit`."""
    fit, dev = cut_part(data.task, data.train, "dev", share, ranks)
    return replace(data, fit=fit, dev=dev)


def cut_part(
    task: Task, data: Encoded, name: str, share: float = CUT_SHARE, ranks: World = SINGLE_RANK
) -> tuple[Encoded, Encoded]:
    """Return the rows of a table without a part, and the part; the result is the same on every call.

    Rows of alike texts, and questions on alike contexts, are on the same side (`group_alike_rows`); or rows
    of one source, where the table has sources. Labels have the same proportions on both sides
    (`Task.strata`), or as nearly as sources allow. Every rank calls this.

    Args:
        name: the name of the part, `test` or `dev`, which the name of its table has too.

    Raises:
        TooFewRowsError: there are too few different texts, or rows of the same label.
        BrimfulError: the part cannot be measured on.
    """
    table = data.table
    sources = table.sources
    if sources is not None:
        contents = Table(table.path, sources, None, None).fingerprints  # hashes of the sources
        groups, what, fewest = np.unique(contents, return_inverse=True)[1], "sources", round(1 / share)
    else:
        groups, contents = cache_groups(table, ranks), table.fingerprints
        what = "texts (case, spaces, punctuation and numbers do not count)"
        fewest = MIN_DIFFERENT_TEXTS if name == "test" else round(1 / share)
    different = int(groups.max()) + 1
    if different < fewest:
        raise TooFewRowsError(
            f"{table.path} has {different} different {what}, too few to cut {name} from: at least {fewest},"
            f" or give --{name}"
        )
    # bool (rows,); the same on every rank, since only the contents decide.
    is_part = cut_rows(groups, task.strata(table), contents, share, name, by_source=sources is not None)
    if is_part.sum() < MIN_PART_OF_CUT * share * len(table):
        raise TooFewRowsError(
            f"{table.path}: only {is_part.sum()} of {len(table)} rows can be {name} (train keeps a row of"
            f" each label, and alike texts); give --{name}, or --task regression if labels are values"
        )
    remaining, part = split_rows(data, _numbers(table)[is_part], name)
    try:
        task.targets(part.table)  # for example, equal values have no correlation
    except BrimfulError as error:
        raise BrimfulError(f"{error}; give --{name}") from error
    return remaining, part


def _numbers(table: Table) -> ndarray:
    """Return the number of each row in its file, int64 (n,), from 0."""
    return np.arange(len(table)) if table.rows is None else table.rows


def split_rows(data: Encoded, rows: ndarray, name: str) -> tuple[Encoded, Encoded]:
    """Divide a table: return all other rows, and the rows that have the given numbers in its file."""
    is_part = np.isin(_numbers(data.table), rows)
    part = data.take(np.flatnonzero(is_part))
    path = part.table.path
    table = replace(part.table, path=path.with_name(f"{path.name}, its {name} rows"))
    return data.take(np.flatnonzero(~is_part)), replace(part, table=table)


def draw_rows(data: Encoded, count: int, name: str) -> Encoded:
    """Draw `count` rows, or all if there are fewer, in their order. Texts and `name` decide the choice."""
    if len(data) <= count:
        return data
    order = np.argsort(hash_words(derive_key(name), data.table.fingerprints), kind="stable")
    return data.take(np.sort(order[:count]))


def make_stream(
    examples: Examples, sequences: int, tokens: int, seed: int, runtime: Runtime
) -> ExampleStream:
    """Return updates of `sequences` examples for this rank, in micro-batches of at most `tokens` tokens."""
    return ExampleStream(
        examples,
        sequences=sequences,
        tokens=tokens,
        seed=seed,
        fixed_shapes=runtime.device.type == "cuda",
        rank=runtime.world.rank,
        world=runtime.world.size,
    )


def make_evaluation(task: Task, head: TaskHead, held_out: Encoded | None) -> Evaluate:
    """Return the `evaluate` of an objective: the task's metrics on a held-out table, or none without one."""
    if held_out is None:
        return no_evaluation

    def evaluate(encoder: Encoder, runtime: Runtime) -> Numbers:
        model = TaskModel(task, encoder, head, held_out.examples.max_length)
        # Training judges its losses itself, so NaN is no error here.
        return model.judge(held_out, runtime.precision, finite=False)[1]

    return evaluate
