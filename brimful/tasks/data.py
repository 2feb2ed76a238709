"""The tables of a task as examples: encoded, split, streamed in updates."""

from dataclasses import dataclass

import numpy as np

from brimful.console import warn
from brimful.data.examples import Examples, ExampleStream
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.randomness import derive_key, permutation
from brimful.tasks.table import Table, encode, read_table
from brimful.tasks.task import Task
from brimful.train.objective import Runtime


@dataclass(frozen=True)
class TaskData:
    """A task and its tables, encoded.

    Attributes:
        fit: the examples that learning rates are compared with; all of train if there is nothing to compare.
        dev: the examples that they are compared on.
        train: all examples for the final training.
        leaked: how many distinct test texts are in the training table too.
    """

    task: Task
    fit: Examples
    dev: Examples | None
    train: Examples
    test: Examples
    leaked: int


def load_task_data(
    kind: type[Task],
    encoder: Encoder,
    train_path: str,
    dev_path: str | None,
    test_path: str,
    *,
    max_length: int,
    split: bool,
) -> TaskData:
    """Read and encode the tables.

    Args:
        kind: the task. The training table gives its labels.
        split: hold out a fifth of train as dev if no dev table is given.

    Raises:
        BrimfulError: a table is missing or malformed, a target is wrong, or train is too small to split.
    """
    train, test = read_table(train_path, labelled=True), read_table(test_path, labelled=True)
    task = kind.from_table(train)
    leaked = len(set(train.keys()) & set(test.keys()))
    if leaked:
        warn(f"{leaked} texts of {test.path} are also in {train.path}, so test metrics are too optimistic")
    if encoder.tokenizer is None:
        raise BrimfulError("the encoder's folder has no tokenizer.json; add it beside config.json")
    check_max_length(max_length, encoder)
    tokenizer = encoder.tokenizer

    def encoded(table: Table) -> Examples:
        return encode(table, tokenizer, max_length, task.targets(table))

    everything = encoded(train)
    dev: Examples | None = None
    fit = everything
    if dev_path:
        dev = encoded(read_table(dev_path, labelled=True))
    elif split:
        order = permutation(len(train), derive_key("dev"))
        size = len(train) // 5
        if not size:
            raise BrimfulError(f"{train.path} has {len(train)} rows, too few to hold out a fifth; give --dev")
        dev, fit = encoded(train.take(order[:size])), encoded(train.take(np.sort(order[size:])))
    return TaskData(task, fit, dev, everything, encoded(test), leaked)


def check_max_length(max_length: int, encoder: Encoder) -> None:
    """Refuse a length that leaves no room for a token between [CLS] and [SEP], or that the encoder lacks."""
    longest = encoder.config.max_length
    if not 3 <= max_length <= longest:
        raise BrimfulError(f"max_length is {max_length}: it must be from 3 to the encoder's {longest}")


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
