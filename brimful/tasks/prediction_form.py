"""The form of predictions: all that a verb needs to know of a task to predict with a trained model.

    read            a file -> a Table
    encode          a table -> its examples: a text is one example, or several windows if it is long
    the model       examples -> outputs, one for each sequence or each token
    answers         outputs -> one answer for each row of the table, from all windows of its text
    rows, scores    answers -> files of predictions

Nothing here imports torch: outputs are arrays, whatever has computed them. The defaults are for tasks with
one prediction for each text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from numpy import ndarray

from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.data.ragged import Ragged
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded

PROBABILITY_DECIMALS = 6
"""Decimals of the probabilities that are written, and of the thresholds that they are compared with."""
Outputs = ndarray | Ragged
"""The outputs of a head for n examples, float32: (n, C) of sequences, or ragged (tokens, C) of tokens."""
Row = dict[str, Any]
"""A row of a file of predictions: values by column."""


class PredictionForm(Protocol):
    """The meaning of a trained model's outputs, and the form of its predictions."""

    name: ClassVar[str]
    """The name of the task in `--task`, and of the term of its loss: `loss.NAME` in metrics.jsonl."""
    problem_type: ClassVar[str]
    """The name of the task in config.json. `transformers` chooses a loss by its own three names."""

    read: ClassVar[Callable[..., Table] | None] = None
    """`read(path, *, labelled, layout, take)` -> a Table, for `table_files.read_file`. None: the files are
    tables of texts or pairs, with labels as texts."""
    characters: ClassVar[bool] = False
    """Whether examples hold the place of each token in its text, in characters."""
    abstains: ClassVar[bool] = False
    """Whether predictions have a probability, so that `--abstain-below` can leave out uncertain labels."""
    labels: list[str]
    """The names of the head's outputs, as config.json stores them; `from_labels` makes the task again. A
    subclass may have a property or a class attribute instead."""

    @classmethod
    def from_texts(cls, texts: list[str], second: list[str] | None) -> Table:
        """Return the table of texts, or pairs of texts, in memory."""
        return Table(Path("texts"), texts, second, None)

    @classmethod
    def from_labels(cls, labels: list[str]) -> Self:
        """Return the task of a trained model, whose config.json gives these names to its outputs."""
        return cls()  # tasks without names of their own

    @property
    def settings(self) -> Values:
        """The JSON values that config.json stores for the task besides its labels."""
        return {}

    def with_settings(self, settings: Values) -> Self:
        """Return the task with the settings of a config.json, which may be empty."""
        return self

    @property
    def facts(self) -> Values:
        """The JSON values that summary.json stores for the task besides its name."""
        return {}

    def answers(self, outputs: Outputs, data: Encoded) -> Any:
        """Return an answer for each row, from the outputs of all its windows; by default the mean, (rows,
        C)."""
        assert isinstance(outputs, ndarray)
        return data.examples.mean_over_windows(outputs)

    def rows(self, answers: Any, data: Encoded) -> list[Row]:
        """Return what `brimful predict` writes for each text: its `prediction`, and other columns."""

    def scores(self, answers: Any) -> ndarray:
        """Return what `brimful predict --scores` writes: a number for each of `labels`, float32 (rows, C). A
        task without such numbers raises a BrimfulError."""
        raise BrimfulError(
            f"a model of {self.name} has no scores of whole texts, which --scores and .npy hold"
        )


@dataclass(frozen=True)
class Numbers(PredictionForm):
    """The form of regression: a number for each text."""

    name = "regression"
    problem_type = "regression"
    labels = ["LABEL_0"]  # noqa: RUF012

    def scores(self, answers: ndarray) -> ndarray:
        """Return the value."""
        return answers

    def rows(self, answers: ndarray, data: Encoded) -> list[Row]:
        """Return `prediction`, a number."""
        return [{"prediction": value} for value in answers[:, 0].tolist()]
