"""The objectives of distillation (TinyBERT: Jiao et al., 2020), on packed rows.

Two differences from the published code: means are over real tokens, real pairs of tokens and texts, not over
padded sizes; and the teacher is in evaluation mode, so its dropout is off.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.nn.attention import Layout
from brimful.nn.encoder import Capture, Encoder
from brimful.nn.heads import SequenceHead, TokenHead
from brimful.objectives.pairwise import attention_score_sum, score_maps
from brimful.objectives.supervised import Evaluate, no_evaluation
from brimful.precision.policy import widen
from brimful.train.objective import PrimaryMetric, Runtime


class LayerDistillation:
    """The objective of the first stage: terms `embedding`, `hidden` and `attention`, each a mean square.

    Attributes:
        projection: student width -> teacher width, shared by all layers (W_h and W_e of the paper); the
            identity if the widths are equal.
    """

    coefficients: ClassVar[dict[str, float]] = {"embedding": 1.0, "hidden": 1.0, "attention": 1.0}
    watched: ClassVar[tuple[str, ...]] = ()
    primary_metric: ClassVar[PrimaryMetric | None] = None
    compiles: ClassVar[bool] = False  # it loops over the sequences

    def __init__(self, teacher: Encoder, student: Encoder) -> None:
        self.teacher = teacher
        self.every = teacher.config.layers // student.config.layers
        self.maps = score_maps((student.config.heads, teacher.config.heads))
        widths = (student.config.hidden_size, teacher.config.hidden_size)
        self.projection = nn.Linear(*widths) if widths[0] != widths[1] else nn.Identity()

    def modules(self) -> dict[str, nn.Module]:
        return {"projection": self.projection}

    def frozen(self) -> dict[str, nn.Module]:
        return {"teacher": self.teacher}

    def normalizers(self, batch: PackedBatch) -> dict[str, float]:
        width, mapped = self.teacher.config.hidden_size, self.teacher.config.layers // self.every
        pairs = sum(length * length for length in batch.lengths[: batch.real_sequences])
        return {
            "embedding": batch.real_tokens * width,
            "hidden": batch.real_tokens * width * mapped,
            "attention": pairs * self.maps * mapped,
        }

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        layout = layout or encoder.prepare(batch)
        ours, theirs = Capture(), Capture()
        encoder(batch, layout, ours)
        with torch.no_grad():
            self.teacher(batch, layout, theirs)
        real = slice(0, batch.real_tokens)

        def hidden_sum(layer: int) -> Tensor:
            projected = widen(self.projection(ours.hidden[layer][real]))
            return (projected - widen(theirs.hidden[layer * self.every][real])).square().sum()

        attention = [
            attention_score_sum(
                (ours.queries[layer], ours.keys[layer]),
                (theirs.queries[(layer + 1) * self.every - 1], theirs.keys[(layer + 1) * self.every - 1]),
                batch,
            )
            for layer in range(len(ours.queries))
        ]
        return {
            "embedding": hidden_sum(0),
            "hidden": torch.stack([hidden_sum(layer) for layer in range(1, len(ours.hidden))]).sum(),
            "attention": torch.stack(attention).sum(),
        }

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        return {}


class LogitDistillation:
    """The objective of the second stage: `logits`, the student's mean loss against the teacher's outputs."""

    coefficients: ClassVar[dict[str, float]] = {"logits": 1.0}
    watched: ClassVar[tuple[str, ...]] = ()
    compiles: ClassVar[bool] = False  # the number of real sequences is a shape here

    def __init__(
        self,
        teacher: Encoder,
        teacher_head: SequenceHead | TokenHead,
        head: SequenceHead | TokenHead,
        imitation: Callable[[Tensor, Tensor], Tensor],
        primary_metric: PrimaryMetric | None = None,
        evaluate: Evaluate = no_evaluation,
    ) -> None:
        """
        Args:
            teacher, teacher_head: the model that is imitated.
            head: the student's head.
            imitation: outputs of student and teacher, (N, outputs) in float32 at least -> sum of losses, ().
            primary_metric: the metric of `evaluate` that checkpoints are compared by.
            evaluate: measures the student on held-out examples.
        """
        self.teacher = teacher
        self.teacher_head = teacher_head
        self.head = head
        self.imitation = imitation
        self.primary_metric = primary_metric
        self._evaluate = evaluate

    def modules(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def frozen(self) -> dict[str, nn.Module]:
        return {"teacher": self.teacher, "teacher_head": self.teacher_head}

    def normalizers(self, batch: PackedBatch) -> dict[str, float]:
        return {"logits": float(self._outputs(batch))}

    def _outputs(self, batch: PackedBatch) -> int:
        """The head's outputs of real sequences, which stand first: one a sequence or one a token."""
        return batch.real_tokens if isinstance(self.head, TokenHead) else batch.real_sequences

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        layout, real = layout or encoder.prepare(batch), slice(0, self._outputs(batch))
        with torch.no_grad():
            theirs = widen(self.teacher_head(self.teacher(batch, layout), batch)[real])
        ours = widen(self.head(encoder(batch, layout), batch)[real])
        return {"logits": self.imitation(ours, theirs)}

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """The student's metrics on held-out examples; empty without any."""
        return self._evaluate(encoder, runtime)
