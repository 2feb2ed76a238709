"""The loss of a task on labelled examples."""

from collections.abc import Callable
from typing import ClassVar, Protocol

from torch import Tensor

from brimful.base.types import Numbers, PrimaryMetric
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead, TokenHead
from brimful.train.objective import Modules, Objective, Runtime, Sums

Evaluate = Callable[[Encoder, Runtime], Numbers]
"""Metrics of an encoder on held-out data, as `Objective.evaluate` returns them."""


def no_evaluation(encoder: Encoder, runtime: Runtime) -> Numbers:
    """No metrics: there is no held-out data."""
    return {}


class Supervision(Protocol):
    """What the objective needs of a task; `tasks.task.Task` says what each member means."""

    name: ClassVar[str]
    watched: ClassVar[tuple[str, ...]]

    @property
    def primary_metric(self) -> PrimaryMetric: ...
    def losses(self, outputs: Tensor, batch: PackedBatch) -> Sums: ...
    def count(self, batch: PackedBatch) -> float: ...


class HeadObjective(Objective):
    """An objective that trains a head besides the encoder, and whose metrics a function measures."""

    def __init__(self, head: SequenceHead | TokenHead, evaluate: Evaluate) -> None:
        self.head = head
        self._evaluate = evaluate

    def modules(self) -> Modules:
        return {"head": self.head}

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> Numbers:
        return self._evaluate(encoder, runtime)


class Supervised(HeadObjective):
    """The objective of fine-tuning: one term, the mean loss of a task over an update's examples."""

    compiles = True

    def __init__(
        self, task: Supervision, head: SequenceHead | TokenHead, evaluate: Evaluate = no_evaluation
    ) -> None:
        super().__init__(head, evaluate)
        self.coefficients = {task.name: 1.0}
        self.watched = task.watched
        self.primary_metric = task.primary_metric
        self.task = task

    def normalizers(self, batch: PackedBatch) -> Numbers:
        return dict.fromkeys((self.task.name, *self.watched), self.task.count(batch))

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> Sums:
        return self.task.losses(self.head(encoder(batch, layout), batch), batch)
