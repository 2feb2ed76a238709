"""The tables of a task as examples: encoded, split, streamed in updates, and evaluated between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brimful.console import warn
from brimful.data.example_stream import ExampleStream
from brimful.data.examples import Examples, check_length
from brimful.distributed import ALONE, World
from brimful.errors import BrimfulError
from brimful.model.encoder import Encoder
from brimful.objectives.supervised import Evaluate, no_evaluation
from brimful.randomness import derive_key, shuffled_groups
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import require_pairs
from brimful.tasks.cache import TaskFiles
from brimful.tasks.encoded import Encoded, warn_of_lost_ends
from brimful.tasks.model import TaskModel
from brimful.tasks.task import Task, TaskHead
from brimful.train.objective import Runtime


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
    test_path: str,
    *,
    max_length: int,
    overlap: int | None = None,
    windows: bool = True,
    split: bool,
    more_tests: Sequence[str] = (),
    layout: FileLayout = OWN_LAYOUT,
    metric: str | None = None,
    ranks: World = ALONE,
) -> TaskData:
    """Read and encode the tables, each once (`cache`), and warn of what would make a metric misleading.

    Args:
        kind: the task. The layout or the training table gives its labels.
        overlap: the tokens that windows of a long text share; None cuts it.
        windows: whether the verb has --overlap, which a warning of cut texts then names.
        split: hold out a fifth of train as dev if no dev table is given.
        more_tests: other tables to measure on.
        metric: the primary metric; None: that of the layout or the task.

    Raises:
        BrimfulError: a table is missing or malformed, a target is wrong, or train is too small to split.
    """
    files = TaskFiles(kind, layout, ranks)
    train, test = files.read(train_path), files.read(test_path)
    task = kind.from_labels(list(layout.labels)) if layout.labels else kind.from_table(train)
    if primary := metric or layout.primary:
        task = task.compared_by(primary)
    leaked = len(np.intersect1d(train.fingerprints, test.fingerprints))
    if leaked and ranks.is_main:
        warn(f"{leaked} texts of {test.path} are also in {train.path}, so test metrics are too optimistic")
    if encoder.tokenizer is None:
        raise BrimfulError("the encoder's folder has no tokenizer.json; add it beside config.json")
    check_length(max_length, encoder.config.max_length)
    tokenizer = encoder.tokenizer

    def encoded(path: str) -> Encoded:
        data = files.encode(task, path, tokenizer, max_length, overlap)
        require_pairs(data.table, train.second is not None, train_path)
        if ranks.is_main:
            warn_of_lost_ends(data.examples.cut, len(data), path, max_length, windows=windows)
        return data

    everything = encoded(train_path)
    dev: Encoded | None = None
    fit = everything
    if dev_path:
        dev = encoded(dev_path)
    elif split:
        fit, dev = hold_out(everything)
        try:
            task.targets(dev.table)
        except BrimfulError as error:
            raise BrimfulError(f"{error}, in the fifth of train that is held out; give --dev") from error
    return TaskData(task, fit, dev, everything, encoded(test_path), leaked, tuple(map(encoded, more_tests)))


def hold_out(train: Encoded) -> tuple[Encoded, Encoded]:
    """Four fifths of the texts, in order, and a fifth to choose on; the same ones on every call.

    Rows of equal texts, and questions on the same context, are on the same side.

    Raises:
        BrimfulError: there are fewer than five different texts, or contexts.
    """
    places = shuffled_groups(train.table.groups(), derive_key("dev"))
    size = (places.max() + 1) // 5
    if not size:
        texts = f"{train.table.path} has {places.max() + 1} different texts"
        raise BrimfulError(f"{texts}, too few to hold out a fifth; give --dev")
    rows = np.argsort(places, kind="stable")
    held = places[rows] < size
    return train.take(np.sort(rows[~held])), train.take(rows[held])


def example_stream(
    examples: Examples, sequences: int, tokens: int, seed: int, runtime: Runtime
) -> ExampleStream:
    """Updates of `sequences` examples for this rank, in micro-batches of at most `tokens` tokens."""
    return ExampleStream(
        examples,
        sequences=sequences,
        tokens=tokens,
        seed=seed,
        fixed_shapes=runtime.device.type == "cuda",
        rank=runtime.world.rank,
        world=runtime.world.size,
    )


def evaluation(task: Task, head: TaskHead, held_out: Encoded | None) -> Evaluate:
    """The `evaluate` of an objective: the task's metrics on a held-out table, if there is one."""
    if held_out is None:
        return no_evaluation

    def evaluate(encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        model = TaskModel(task, encoder, head, held_out.examples.max_length)
        return model.judge(held_out, runtime.precision, finite=False)[1]  # training has a guard of its own

    return evaluate
