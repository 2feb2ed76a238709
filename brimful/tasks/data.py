"""The tables of a task as examples: encoded, split, streamed in updates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brimful.console import warn
from brimful.data import examples
from brimful.data.example_stream import Drawn, ExampleStream
from brimful.distributed import ALONE, World
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.randomness import derive_key, shuffled_groups
from brimful.tasks.cache import TaskFiles
from brimful.tasks.encoded import Encoded
from brimful.tasks.layouts import OWN_LAYOUT, Layout
from brimful.tasks.table import Table
from brimful.tasks.task import Task
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
    layout: Layout = OWN_LAYOUT,
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
            warn_of_cut(data.examples.cut, len(data), path, max_length, windows=windows and kind.windows)
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


def require_pairs(table: Table, pairs: bool, training: Path | str) -> None:
    """Refuse single texts where the training table has pairs, and the other way round.

    Args:
        training: the name of the training table.
    """
    if (table.second is not None) != pairs:
        has, lacks = (training, table.path) if pairs else (table.path, training)
        raise BrimfulError(
            f"{has} has pairs of texts, {lacks} single ones: the column text_b, or the one that"
            " --columns.text-b names, must be in all tables or in none"
        )


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


def warn_of_cut(cut: int, texts: int, path: Path | str, max_length: int, *, windows: bool = True) -> None:
    """Say how many texts lost their ends, and what would keep them.

    Args:
        windows: whether the verb has --overlap.
    """
    remedy = "raise --max-length" + (", or read them in windows with --overlap 32" if windows else "")
    examples.warn_of_cut(cut, texts, max_length, remedy, of=f" of {path}")


def check_length(max_length: int, longest: int) -> None:
    """Refuse a length that leaves no room for a token between [CLS] and [SEP], or is over the longest."""
    if not 3 <= max_length <= longest:
        raise BrimfulError(f"max_length is {max_length}: it must be from 3 to the encoder's {longest}")


def example_stream(
    examples: Drawn, sequences: int, tokens: int, seed: int, runtime: Runtime
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
