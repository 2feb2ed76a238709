"""The objectives of distillation, on packed rows, and their loss of attention scores.

Two differences from the published code: means are over real tokens, real pairs of tokens and texts, not over
padded sizes; and the teacher is in evaluation mode, so its dropout is off.

Attention scores are matrices of L x L for each sequence of L tokens, which are not kept: the loss and the
gradient of the student's inputs are computed together, sequence by sequence, and backward only scales that
gradient. So memory is O(T * width), and a sequence costs nothing beyond its own pairs, since nothing is
masked inside a packed sequence.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from brimful.base.types import Numbers, PrimaryMetric
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.encoder import Capture, Encoder
from brimful.model.heads import SequenceHead, TokenHead
from brimful.objectives.layer_losses import LayerLosses
from brimful.objectives.losses import Imitation
from brimful.objectives.supervised import Evaluate, HeadObjective, no_evaluation
from brimful.precision.policy import widen
from brimful.train.objective import Modules, Objective, Sums

TEACHER = "teacher"
"""The target that holds the teacher's outputs for each example: float32, of a sequence or of each token."""


class LayerDistillation(Objective):
    """The objective of the stage of the layers: the terms of `LayerLosses`.

    Attributes:
        projections: one, student width -> teacher width, for the embeddings and all layers, as in TinyBERT's
            code; empty if the widths are equal.
    """

    def __init__(self, teacher: Encoder, student: Encoder, losses: LayerLosses | None = None) -> None:
        """
        Raises:
            BrimfulError: the losses do not fit these models.
        """
        ours, theirs = student.config, teacher.config
        losses = losses or LayerLosses()
        self.teacher = teacher
        self.coefficients = losses.coefficients
        self.layers = losses.map_layers(ours, theirs)
        # The score maps of a layer that `attention_score_sum` compares.
        self.maps = ours.heads if ours.heads == theirs.heads else 1
        self.projections = nn.ModuleList()
        # Attention scores have no width. Without the other terms, a projection would have no gradient.
        if ours.hidden_size != theirs.hidden_size and set(self.coefficients) - {"attention"}:
            self.projections.append(nn.Linear(ours.hidden_size, theirs.hidden_size))

    def modules(self) -> Modules:
        return {"projections": self.projections}

    def frozen(self) -> Modules:
        return {"teacher": self.teacher}

    def normalizers(self, batch: PackedBatch) -> Numbers:
        width, layers, tokens = self.teacher.config.hidden_size, len(self.layers), batch.real_tokens
        pairs = sum(length * length for length in batch.lengths[: batch.real_sequences])
        sizes = {
            "embedding": tokens * width,
            "hidden": tokens * width * layers,
            "attention": pairs * self.maps * layers,
        }
        return {name: sizes[name] for name in self.coefficients}

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> Sums:
        layout = layout or encoder.prepare(batch)
        ours, theirs = Capture(), Capture(frozenset(self.layers))
        encoder(batch, layout, ours)
        with torch.no_grad():
            self.teacher(batch, layout, theirs)
        real = batch.real_tokens  # real sequences come first
        # Hidden states: [0] are the embeddings (Jiao et al. 2020, "TinyBERT", equation 9), [i + 1] the output
        # of layer i (equation 8), (T, width) each.
        sums = defaultdict(list)  # by term
        if "embedding" in self.coefficients:
            sums["embedding"].append(self._square_sum(ours.hidden[0][:real], theirs.hidden[0][:real]))
        for layer, teacher in enumerate(self.layers):
            if "hidden" in self.coefficients:
                states = ours.hidden[layer + 1][:real], theirs.hidden[teacher + 1][:real]
                sums["hidden"].append(self._square_sum(*states))
            if "attention" in self.coefficients:
                student_scores = ours.queries[layer], ours.keys[layer]
                teacher_scores = theirs.queries[teacher], theirs.keys[teacher]
                sums["attention"].append(attention_score_sum(student_scores, teacher_scores, batch))
        return {name: torch.stack(sums[name]).sum() for name in self.coefficients}

    def _square_sum(self, ours: Tensor, theirs: Tensor) -> Tensor:
        """Sum squared differences, with the student's states in the teacher's width."""
        for projection in self.projections:
            ours = projection(ours)
        return (widen(ours) - widen(theirs)).square().sum()


class LogitDistillation(HeadObjective):
    """The objective of the stage of the outputs: `logits`, the student's mean loss against the teacher's."""

    def __init__(
        self,
        head: SequenceHead | TokenHead,
        imitation: Imitation,
        primary_metric: PrimaryMetric | None = None,
        evaluate: Evaluate = no_evaluation,
    ) -> None:
        """
        Args:
            head: the student's head.
            imitation: the loss. The teacher's outputs are the target `TEACHER` of batches, float32 (S, C) or
                (T, C).
            primary_metric: the metric of `evaluate` that checkpoints are compared by.
            evaluate: measures the student on held-out examples.
        """
        super().__init__(head, evaluate)
        self.coefficients = {"logits": 1.0}
        self.imitation = imitation
        self.primary_metric = primary_metric

    def normalizers(self, batch: PackedBatch) -> Numbers:
        return {"logits": float(self._count_outputs(batch))}

    def _count_outputs(self, batch: PackedBatch) -> int:
        """Count the head's outputs of real sequences, which come first: one a sequence or one a token."""
        return batch.real_tokens if isinstance(self.head, TokenHead) else batch.real_sequences

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> Sums:
        outputs = self.head(encoder(batch, layout), batch)
        n = self._count_outputs(batch)
        return {"logits": self.imitation(widen(outputs[:n]), widen(batch.targets[TEACHER][:n]))}


Projections = tuple[Tensor, Tensor]
"""Queries and keys, (T, heads, head size) each, not yet divided by anything."""


def attention_score_sum(student: Projections, teacher: Projections, batch: PackedBatch) -> Tensor:
    """Sum squared differences of attention scores before the softmax, () in float32 at least.

    The scores are QK' / sqrt(head size), for all pairs of tokens of each real sequence, for all heads (Jiao
    et al. 2020, "TinyBERT", equation 7). If the numbers of heads differ, the means of the scores over each
    model's heads are compared instead, as one head.

    A sequence takes one of two exact forms, whichever has fewer operations. With A = QsKs' - QtKt' (scales
    left out), the first forms A; the second uses |A|^2 = <Qs'Qs, Ks'Ks> - 2 <Qt'Qs, Kt'Ks> + <Qt'Qt, Kt'Kt>,
    AKs = Qs(Ks'Ks) - Qt(Kt'Ks) and A'Qs = Ks(Qs'Qs) - Kt(Qt'Qs), which is O(L d^2). Its value loses digits
    where A is much smaller than QK'; its gradient does not.

    Args:
        student, teacher: the head sizes may differ. The teacher has no gradient.
    """
    if student[0].shape[1] != teacher[0].shape[1]:
        student, teacher = _merge_heads(*student), _merge_heads(*teacher)
    with torch.autocast(student[0].device.type, enabled=False):  # products of widened numbers stay wide
        return _AttentionScores.apply(*student, *teacher, batch)


def _merge_heads(q: Tensor, k: Tensor) -> Projections:
    """Queries and keys whose scores, over sqrt(head size), are the means over the heads."""
    # All heads side by side, (T, 1, heads * head size): a product of these sums the heads' products. One over
    # sqrt(heads) comes from the larger head size, the other from here.
    heads = q.shape[1]
    return (q * heads**-0.5).flatten(1)[:, None], k.flatten(1)[:, None]


def uses_gram(length: int, student: int, teacher: int) -> bool:
    """Whether the second form of `attention_score_sum` has fewer operations, for these head sizes."""
    return length * (student + teacher) > 2 * (student**2 + student * teacher + teacher**2)


class _AttentionScores(torch.autograd.Function):
    """`attention_score_sum` of projections with equal numbers of heads."""

    @staticmethod
    def forward(ctx, q_s: Tensor, k_s: Tensor, q_t: Tensor, k_t: Tensor, batch: PackedBatch) -> Tensor:
        total = widen(q_s.new_zeros(()))
        needs_gradient = any(ctx.needs_input_grad)
        if needs_gradient:
            d_q, d_k = torch.zeros_like(q_s), torch.zeros_like(k_s)
        scale_s, scale_t = q_s.shape[-1] ** -0.5, q_t.shape[-1] ** -0.5
        start = 0
        for length in batch.lengths[: batch.real_sequences]:
            part = slice(start, start + length)
            start += length
            # (heads, L, head size), wide: a difference of large scores would have few digits in bf16.
            qs, ks, qt, kt = (widen(x[part]).transpose(0, 1) for x in (q_s, k_s, q_t, k_t))
            qs, qt = qs * scale_s, qt * scale_t
            if uses_gram(length, qs.shape[-1], qt.shape[-1]):
                # Gram matrices, (heads, head size, head size): of the student, and of teacher and student
                qq, kk = qs.mT @ qs, ks.mT @ ks
                tq, tk = qt.mT @ qs, kt.mT @ ks
                value = (qq * kk).sum() - 2 * (tq * tk).sum() + ((qt.mT @ qt) * (kt.mT @ kt)).sum()
                if needs_gradient:
                    by_key, by_query = qs @ kk - qt @ tk, ks @ qq - kt @ tq
            else:
                difference = qs @ ks.mT - qt @ kt.mT  # A, (heads, L, L)
                value = difference.square().sum()
                if needs_gradient:
                    by_key, by_query = difference @ ks, difference.mT @ qs
            total = total + value
            if needs_gradient:  # d|A|^2 = 2 A dA; `qs` has its scale, so only the query's gradient lacks it
                d_q[part] = (2 * scale_s * by_key).transpose(0, 1)
                d_k[part] = (2 * by_query).transpose(0, 1)
        if needs_gradient:
            ctx.save_for_backward(d_q, d_k)
        return total

    @staticmethod
    def backward(ctx, d_total: Tensor) -> tuple[Tensor | None, ...]:
        d_q, d_k = ctx.saved_tensors
        return d_q * d_total.to(d_q.dtype), d_k * d_total.to(d_k.dtype), None, None, None
