"""The tables of a task as examples: encoded, split, dealt out in updates, and evaluated between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from brimful.base.console import warn
from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, hash_words
from brimful.base.types import Metrics
from brimful.data.example_stream import ExampleStream
from brimful.data.examples import Examples, check_length
from brimful.model.encoder import Encoder
from brimful.objectives.supervised import Evaluate, no_evaluation
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Table, require_pairs
from brimful.tasks.cached_tables import TaskFiles, cache_groups
from brimful.tasks.encoded_tables import Encoded, warn_of_lost_ends
from brimful.tasks.row_groups import MIN_DIFFERENT_TEXTS, cut_rows
from brimful.tasks.task import Task, TaskHead
from brimful.tasks.task_model import TaskModel
from brimful.train.objective import Runtime

CUT_SHARE = 0.2
"""The proportion of a table that becomes test, and of train that becomes dev where a choice is made."""
MIN_PART_OF_CUT = 0.25
"""A part of less than this proportion of its share is refused: it would measure on a handful of rows."""


@dataclass(frozen=True)
class TaskData:
    """A task and its tables, encoded.

    Attributes:
        fit: the rows that learning rates are compared with; all of train if there is nothing to compare.
        dev: the rows that they are compared on.
        train: all rows for the final training.
        leaked: how many distinct test texts are in the training table too.
        more_tests: other tables to measure the finished model on.
    """

    task: Task
    fit: Encoded
    dev: Encoded | None
    train: Encoded
    test: Encoded
    leaked: int
    more_tests: tuple[Encoded, ...] = ()


def load_task_data(
    kind: type[Task],
    encoder: Encoder,
    train_path: str,
    dev_path: str | None,
    test_path: str | None,
    *,
    max_length: int,
    overlap: int | None = None,
    test_rows: np.ndarray | None = None,
    dev_rows: np.ndarray | None = None,
    more_tests: Sequence[str] = (),
    layout: FileLayout = OWN_LAYOUT,
    metric: str | None = None,
    ranks: World = SINGLE_RANK,
) -> TaskData:
    """Read and encode the tables, each once (`cache`), and warn of what would make a metric misleading.

    Args:
        kind: the task. The layout or the training table gives its labels.
        test_path: None: test is cut from the training table (`cut_part`).
        overlap: the tokens that windows of a long text share; None cuts it.
        test_rows, dev_rows: int64, rows of the training table that are test, or dev.
        more_tests: other tables to measure on.
        metric: the primary metric; None: the layout's, or the task's.

    Raises:
        BrimfulError: a table is missing or malformed, a target is wrong, or train is too small to cut.
    """
    files = TaskFiles(kind, layout, ranks)
    train = files.read(train_path)
    test = None if test_path is None else files.read(test_path)
    task = kind.from_labels(list(layout.labels)) if layout.labels else kind.from_table(train)
    primary = metric or layout.primary
    if primary:
        task = task.with_primary(primary)
    leaked = 0 if test is None else len(np.intersect1d(train.fingerprints, test.fingerprints))
    if test is not None and leaked and ranks.is_main:
        warn(f"{leaked} texts of {test.path} are also in {train.path}, so test metrics are too optimistic")
    if encoder.tokenizer is None:
        raise BrimfulError("the encoder's folder has no tokenizer.json; add it beside config.json")
    check_length(max_length, encoder.config.max_length)
    tokenizer = encoder.tokenizer

    def encode_file(path: str) -> Encoded:
        data = files.encode(task, path, tokenizer, max_length, overlap)
        require_pairs(data.table, train.second is not None, train_path)
        if ranks.is_main:
            warn_of_lost_ends(data.examples.cut, len(data), path, max_length)
        return data

    # Test is cut before dev: all runs on a table have the same test, whatever dev is.
    train_data = whole = encode_file(train_path)
    if test_path is not None:
        test_data = encode_file(test_path)
    elif test_rows is not None:
        train_data, test_data = split_rows(train_data, test_rows, "test")
    else:
        train_data, test_data = cut_part(task, train_data, "test", ranks=ranks)
    dev_data = None if dev_path is None else encode_file(dev_path)
    if dev_rows is not None:
        train_data, dev_data = split_rows(train_data, dev_rows, "dev")
    more_data = tuple(map(encode_file, more_tests))
    others = [test_data, *more_data]
    if dev_data is not None:
        others.insert(1, dev_data)
    if not ranks.is_main:  # one rank warns of them
        others = []
    task = task.learn(whole, others)
    return TaskData(task, train_data, dev_data, train_data, test_data, leaked, more_data)


class TooFewRowsError(BrimfulError):
    """A table has too few rows of a kind to cut a part from."""


def hold_out(data: TaskData, share: float = CUT_SHARE, ranks: World = SINGLE_RANK) -> TaskData:
    """Return the same data with a share of train as dev, and the other rows to fit."""
    fit, dev = cut_part(data.task, data.train, "dev", share, ranks)
    return replace(data, fit=fit, dev=dev)


def cut_part(
    task: Task, data: Encoded, name: str, share: float = CUT_SHARE, ranks: World = SINGLE_RANK
) -> tuple[Encoded, Encoded]:
    """Return the rows of a table without a part, and the part; the same ones on every call.

    Rows of alike texts, and questions on alike contexts, are on the same side (`group_alike_rows`). Labels
    have the same proportions on both (`Task.strata`). Every rank calls this.

    Args:
        name: the name of the part, which is also in the name of its table.

    Raises:
        TooFewRowsError: there are too few different texts, or rows of the same label.
        BrimfulError: the part cannot be measured on.
    """
    table = data.table
    groups = cache_groups(table, ranks)
    different = int(groups.max()) + 1
    fewest = round(1 / share)
    if name == "test":
        fewest = MIN_DIFFERENT_TEXTS
    if different < fewest:
        raise TooFewRowsError(
            f"{table.path} has {different} different texts (case, spaces, punctuation and numbers do not"
            f" count), too few to cut {name} from: at least {fewest}, or give --{name}"
        )
    # bool (rows,); the same on every rank, since the contents decide.
    is_part = cut_rows(groups, task.strata(table), table.fingerprints, share, name)
    if is_part.sum() < MIN_PART_OF_CUT * share * len(table):
        raise TooFewRowsError(
            f"{table.path}: only {is_part.sum()} of {len(table)} rows can be {name} (train keeps a row of"
            f" each label, and alike texts); give --{name}, or --task regression if labels are values"
        )
    remaining, part = split_rows(data, _numbers(table)[is_part], name)
    try:
        task.targets(part.table)  # equal values, say, have no correlation
    except BrimfulError as error:
        raise BrimfulError(f"{error}; give --{name}") from error
    return remaining, part


def _numbers(table: Table) -> np.ndarray:
    """The number of each row in its file, int64 (n,), from 0."""
    if table.rows is None:
        return np.arange(len(table))
    return table.rows


def split_rows(data: Encoded, rows: np.ndarray, name: str) -> tuple[Encoded, Encoded]:
    """Return the other rows of a table, and the rows with the given numbers in its file, as a table."""
    is_part = np.isin(_numbers(data.table), rows)
    part = data.take(np.flatnonzero(is_part))
    path = part.table.path
    table = replace(part.table, path=path.with_name(f"{path.name}, its {name} rows"))
    return data.take(np.flatnonzero(~is_part)), replace(part, table=table)


def draw_rows(data: Encoded, count: int, name: str) -> Encoded:
    """Draw `count` rows, or all, in their order. Their texts and `name` decide, not where they stand."""
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
    """Return the `evaluate` of an objective: the task's metrics on a held-out table, if there is one."""
    if held_out is None:
        return no_evaluation

    def evaluate(encoder: Encoder, runtime: Runtime) -> Metrics:
        model = TaskModel(task, encoder, head, held_out.examples.max_length)
        return model.judge(held_out, runtime.precision, finite=False)[1]  # training has a guard of its own

    return evaluate
