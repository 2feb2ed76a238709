"""The task protocol: all that the verbs and the report know of a task.

A task is a subclass of `Task` in a file of this folder, and a few lines in `registry`. It adds the training
and the measuring to its `PredictionForm`. The defaults are for tasks with one prediction for each text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Protocol, Self

from numpy import ndarray
from tokenizers import Tokenizer
from torch import Tensor

from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.types import Direction, Numbers, PrimaryMetric
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead, TokenHead
from brimful.objectives.losses import Imitation
from brimful.tables.table import Table, label_names_of
from brimful.tasks.encoded_tables import Encoded, Targets, encode
from brimful.tasks.prediction_form import PredictionForm, Row

RowsMetric = Callable[[ndarray], float]
"""Rows, int64 (n,) -> a metric on them."""
TaskHead = SequenceHead | TokenHead
"""Hidden states (T, hidden) and their batch -> outputs of each sequence (S, C), or of each token (T, C)."""


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are.

    Attributes:
        name: its key in summary.json and metrics.jsonl.
        title: its name in a sentence.
        best: which of two values is better.
        percent: whether it is shown as a percentage.
    """

    name: str
    title: str
    best: Direction = "highest"
    percent: bool = False

    def score(self, measured: Numbers) -> float:
        """Return the measured value, negated if the lowest is best, so that higher is better; 0 if absent."""
        value = measured.get(self.name, 0.0)
        return value if self.best == "highest" else -value


class Task(PredictionForm, Protocol):
    """The training and measuring of predictions. Their form is in another file, which does not need torch."""

    metrics: ClassVar[tuple[Metric, ...]]
    """The metrics that `measure` returns if the data allow it. It always returns the first, the primary
    metric, by which learning rates, checkpoints and students are compared."""
    watched: ClassVar[tuple[str, ...]] = ()
    """Sums of `losses` that are logged and not trained."""
    overlap: ClassVar[int | None] = None
    """Tokens that windows of a long text share by default, at most a quarter of a window; None: texts are
    cut."""
    by_row: ClassVar[bool] = False
    """Whether labelled rows are independent, so that a table may be larger than memory."""

    @classmethod
    def from_table(cls, table: Table) -> Self:
        """Return the task with the labels or values of a training table. A BrimfulError refuses the table."""

    def learn(self, train: Encoded, others: Iterable[Encoded] = ()) -> Self:
        """Return the task with the settings of its training examples, and warn of targets in `others` that it
        cannot predict."""
        return self

    def fit_settings(self, answers: Any, dev: Encoded) -> Self:
        """Return the task with the settings that give the answers for dev the best primary metric."""
        return self

    @property
    def calibrates(self) -> bool:
        """Whether dev rows decide `settings` or a temperature of a trained model."""
        return bool(self.settings)

    @property
    def description(self) -> str:
        """The prediction in a few words: `2 classes (bad, good)`."""

    @property
    def primary_metric(self) -> PrimaryMetric:
        """The primary metric and its direction, as the trainer takes them."""
        return self.metrics[0].name, self.metrics[0].best

    def with_primary(self, name: str) -> Self:
        """Return the same task with another primary metric; an unknown name is a BrimfulError."""
        metrics = {metric.name: metric for metric in self.metrics}
        if name not in metrics:
            raise BrimfulError(f"{self.name} has no metric {name!r}; {suggest_name(name, metrics)}")
        task = copy(self)
        metrics = {name: metrics[name]} | metrics  # the primary metric stands first
        object.__setattr__(task, "metrics", tuple(metrics.values()))  # tasks are frozen dataclasses
        return task

    def new_head(self, encoder: Encoder) -> TaskHead:
        """Return a head with random weights, drawn from torch's generator."""
        return SequenceHead(encoder, len(self.labels))

    def encode(
        self, table: Table, tokenizer: Tokenizer, max_length: int, overlap: int | None, *, labelled: bool
    ) -> Encoded:
        """Encode the texts of a table, with targets if `labelled`. Windows of a text share `overlap` tokens;
        None cuts texts that are too long.

        Raises:
            BrimfulError: `overlap` is too large for a window; or as `targets`.
        """
        targets = self.targets(table) if labelled else {}
        characters = self.characters
        data = encode(table, tokenizer, max_length, overlap=overlap, characters=characters, targets=targets)
        if labelled:  # some targets depend on the windows
            data.examples.targets.update(self.example_targets(table, data.examples))
        return data

    def targets(self, table: Table) -> Targets:
        """Return the targets of each row, by name: (n,) or (n, C), int64 or float32.

        Raises:
            BrimfulError: a row has a wrong target, or the targets of the table cannot be measured.
        """
        return {}

    def example_targets(self, table: Table, examples: Examples) -> dict[str, ndarray | Ragged]:
        """Return the targets of each example or token that depend on its window; raises as `targets`."""
        return {}

    def strata(self, table: Table) -> Sequence[object]:
        """Return the stratum of each row, by default its rarest label; None if labels have no names. A cut
        takes the same proportion of each stratum."""
        named = label_names_of(table)
        if named is None:
            return [None] * len(table)
        counts = Counter(chain.from_iterable(named))
        return [min(names, key=lambda name: (counts[name], name), default=None) for names in named]

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        """Return sums over a batch, () in float32 at least: the term `name`, and all that are `watched`.
        Outputs of the head, (S, C) or (T, C), for filler and empty sequences do not count."""

    def count(self, batch: PackedBatch) -> float:
        """Return the divisor of the sums of `losses`, which depends on the batch only."""
        return float(batch.real_sequences)

    def imitation(self, temperature: float) -> Imitation:
        """Return the loss of a student's outputs (N, outputs) against its teacher's, summed to (). A task
        without probabilities refuses a temperature with a BrimfulError."""

    def measure(self, answers: Any, data: Encoded) -> Numbers:
        """Return the metrics of the answers, and `n`."""

    def make_primary(self, answers: Any, data: Encoded) -> RowsMetric:
        """Return the primary metric as a function of rows, int64, of `data`, which is called often."""

        def measure_rows(rows: ndarray) -> float:
            chosen = answers[rows] if isinstance(answers, ndarray) else [answers[row] for row in rows]
            return self.measure(chosen, data.take(rows))[self.metrics[0].name]

        return measure_rows

    def compare_rows(self, answers: Any, data: Encoded) -> list[Row]:
        """Return a row of predictions.jsonl for each text: its target, `gold`, and the `prediction`."""
        rows = []
        for gold, row in zip(data.labels, self.rows(answers, data), strict=True):
            rows.append({"gold": gold, "prediction": row["prediction"]})
        return rows
