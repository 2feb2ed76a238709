"""The objectives of distillation, on packed rows.

Two differences from the published code: means are over real tokens, real pairs of tokens and texts, not over
padded sizes; and the teacher is in evaluation mode, so its dropout is off.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from brimful.base.types import PrimaryMetric
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.encoder import Capture, Encoder
from brimful.model.heads import SequenceHead, TokenHead
from brimful.objectives.layer_losses import LayerLosses
from brimful.objectives.pairwise import attention_score_sum, score_maps
from brimful.objectives.supervised import Evaluate, Supervision, no_evaluation
from brimful.precision.policy import widen
from brimful.train.objective import Objective, Runtime

TEACHER = "teacher"
"""The target that holds what the teacher says of each example: float32, of a sequence or of each token."""


class LayerDistillation(Objective):
    """The objective of the stage of the layers: the terms of `LayerLosses`.

    Attributes:
        projections: one, student width -> teacher width, for the embeddings and all layers, as in TinyBERT's
            code; none if the widths are equal.
    """

    def __init__(self, teacher: Encoder, student: Encoder, losses: LayerLosses | None = None) -> None:
        """
        Raises:
            BrimfulError: the losses do not fit these models.
        """
        ours, theirs = student.config, teacher.config
        self.losses = losses = LayerLosses() if losses is None else losses
        self.teacher = teacher
        self.coefficients = losses.coefficients
        self.layers = losses.imitated(ours, theirs)
        self.maps = score_maps((ours.heads, theirs.heads))
        widths = ours.hidden_size, theirs.hidden_size
        self.projections = nn.ModuleList()
        if widths[0] != widths[1] and set(self.coefficients) - {"attention"}:
            self.projections.append(nn.Linear(*widths))

    def modules(self) -> dict[str, nn.Module]:
        return {"projections": self.projections}

    def frozen(self) -> dict[str, nn.Module]:
        return {"teacher": self.teacher}

    def normalizers(self, batch: PackedBatch) -> dict[str, float]:
        width, layers, tokens = self.teacher.config.hidden_size, len(self.layers), batch.real_tokens
        pairs = sum(length * length for length in batch.lengths[: batch.real_sequences])
        known = {
            "embedding": tokens * width,
            "hidden": tokens * width * layers,
            "attention": pairs * self.maps * layers,
        }
        return {name: known[name] for name in self.coefficients}

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        layout = layout or encoder.prepare(batch)
        ours, theirs = Capture(), Capture(frozenset(self.layers))
        encoder(batch, layout, ours)
        with torch.no_grad():
            self.teacher(batch, layout, theirs)
        compute = {
            "embedding": lambda: self._square_sum(ours.hidden[0], theirs.hidden[0], batch),
            "hidden": lambda: self._hidden_sum(ours, theirs, batch),
            "attention": lambda: self._attention_sum(ours, theirs, batch),
        }
        return {name: compute[name]() for name in self.coefficients}

    def _projected(self, hidden: Tensor) -> Tensor:
        """Hidden states of the student in the teacher's width."""
        for projection in self.projections:
            hidden = projection(hidden)
        return widen(hidden)

    def _square_sum(self, ours: Tensor, theirs: Tensor, batch: PackedBatch) -> Tensor:
        real = slice(0, batch.real_tokens)
        return (self._projected(ours[real]) - widen(theirs[real])).square().sum()

    def _hidden_sum(self, ours: Capture, theirs: Capture, batch: PackedBatch) -> Tensor:
        sums = [
            self._square_sum(ours.hidden[layer + 1], theirs.hidden[teacher + 1], batch)
            for layer, teacher in enumerate(self.layers)
        ]
        return torch.stack(sums).sum()

    def _attention_sum(self, ours: Capture, theirs: Capture, batch: PackedBatch) -> Tensor:
        pairs = [
            ((ours.queries[layer], ours.keys[layer]), (theirs.queries[teacher], theirs.keys[teacher]))
            for layer, teacher in enumerate(self.layers)
        ]
        return torch.stack([attention_score_sum(*pair, batch) for pair in pairs]).sum()


class LogitDistillation(Objective):
    """The objective of the stage of the outputs: `logits`, the student's mean loss against the teacher's, and
    with `labels` the task's own term, its loss against the labels."""

    def __init__(
        self,
        head: SequenceHead | TokenHead,
        imitation: Callable[[Tensor, Tensor], Tensor],
        primary_metric: PrimaryMetric | None = None,
        evaluate: Evaluate = no_evaluation,
        *,
        labels: tuple[Supervision, float] | None = None,
    ) -> None:
        """
        Args:
            head: the student's head.
            imitation: outputs of student and teacher, (N, outputs) in float32 at least -> sum of losses, ().
                The teacher's are the target `TEACHER` of batches, float32 (S, C) or (T, C).
            primary_metric: the metric of `evaluate` that checkpoints are compared by.
            evaluate: measures the student on held-out examples.
            labels: the task and the weight of its loss, which is a mean as in fine-tuning.
        """
        self.coefficients = {"logits": 1.0} | ({labels[0].name: labels[1]} if labels else {})
        self.head = head
        self.imitation = imitation
        self.primary_metric = primary_metric
        self.labels = labels
        self._evaluate = evaluate

    def modules(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def normalizers(self, batch: PackedBatch) -> dict[str, float]:
        of_labels = {self.labels[0].name: self.labels[0].weight(batch)} if self.labels else {}
        return {"logits": float(self._outputs(batch)), **of_labels}

    def _outputs(self, batch: PackedBatch) -> int:
        """The head's outputs of real sequences, which stand first: one a sequence or one a token."""
        return batch.real_tokens if isinstance(self.head, TokenHead) else batch.real_sequences

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        layout, real = layout or encoder.prepare(batch), slice(0, self._outputs(batch))
        outputs = self.head(encoder(batch, layout), batch)
        found = {"logits": self.imitation(widen(outputs[real]), widen(batch.targets[TEACHER][real]))}
        if self.labels:
            task = self.labels[0]
            found[task.name] = task.losses(outputs, batch)[task.name]
        return found

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """The student's metrics on held-out examples; empty without any."""
        return self._evaluate(encoder, runtime)
