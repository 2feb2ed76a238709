"""Masked language modelling on packed rows, with or without pairs of sentences beside it."""

import torch
from torch import Tensor

from brimful.base.types import IGNORED, LossMean, Numbers
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.cross_entropy import count_hits, count_labels, cross_entropy_sum
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.model.linear_cross_entropy import linear_cross_entropy
from brimful.train.objective import Modules, Objective, Runtime, Sums

PREDICTIONS_AT_ONCE = 1024
"""Predictions whose logits an evaluation holds at a time."""


Ratios = dict[str, tuple[float, float]]
"""Metrics by name, each a sum and its normalizer."""


class MaskedLM(Objective):
    """One term, `mlm`: a mean over an update's predictions, or over the means of its sequences."""

    watched: tuple[str, ...] = ("accuracy",)
    primary_metric = ("loss", "lowest")
    compiles = True

    def __init__(
        self,
        head: MaskedLMHead,
        validation: dict[str, list[PackedBatch]],
        loss_mean: LossMean = "tokens",
    ) -> None:
        """
        Args:
            head: trained beside the encoder.
            validation: held-out batches of each source.
            loss_mean: "tokens": every prediction counts the same. "sequences": every sequence with
                predictions counts the same, as in a batch without packing (Krell et al. 2021, section 3.2.3).
        """
        self.coefficients = {"mlm": 1.0}
        self.head = head
        self.validation = validation
        self.by_sequence = loss_mean == "sequences"
        self.metrics = ["loss", "accuracy"]
        if self.by_sequence:
            self.metrics.append("token_loss")

    def modules(self) -> Modules:
        return {"head": self.head}

    def normalizers(self, batch: PackedBatch) -> Numbers:
        assert batch.mlm_labels is not None
        predictions = count_labels(batch.mlm_labels)
        mlm = count_predicted_sequences(batch) if self.by_sequence else predictions
        return {"mlm": mlm, "accuracy": predictions}

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> Sums:
        return self.masked_lm_sums(encoder(batch, layout, output_slots=self.output_slots(batch)), batch)

    def output_slots(self, batch: PackedBatch) -> Tensor:
        """int64 (N,): the slots whose hidden states are read; the last M belong to the predictions."""
        assert batch.mlm_positions is not None
        return batch.mlm_positions

    def masked_lm_sums(self, hidden: Tensor, batch: PackedBatch) -> Sums:
        """Compute the sums of `mlm` and `accuracy` from hidden (M, hidden), of the predictions."""
        assert batch.mlm_labels is not None
        states = self.head.transform(hidden)
        weights = self._prediction_weights(batch, hidden.dtype)
        # Product and loss in one, so that the logits (M, vocabulary) are never whole in memory.
        total, correct = linear_cross_entropy(states, *self.head.decoder, batch.mlm_labels, weights)
        return {"mlm": total, "accuracy": correct}

    def _prediction_weights(self, batch: PackedBatch, dtype: torch.dtype) -> Tensor | None:
        """The factor of each prediction in the sum of `mlm`; None: 1 for all."""
        if not self.by_sequence:
            return None
        return prediction_weights(batch, torch.promote_types(dtype, torch.float32))

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> Numbers:
        """Mean loss and accuracy over the held-out predictions, whose masks never change.

        `loss` is the mean that is trained. `accuracy` is a mean over predictions, and so is `token_loss`,
        which is there if `loss` is another mean. With several sources, each has its own metrics too:
        `loss.SOURCE`.
        """
        # By source and metric. All ranks have all keys, also those without a batch of a source.
        sums = {(source, name): 0.0 for source in self.validation for name in self.metrics}
        normalizers = dict(sums)
        for source, batches in self.validation.items():
            for batch in batches[runtime.world.rank :: runtime.world.size]:
                batch = batch.to(runtime.device)
                with runtime.autocast():
                    measured = self.measure(encoder(batch, output_slots=self.output_slots(batch)), batch)
                for name in self.metrics:
                    sums[source, name] += measured[name][0]
                    normalizers[source, name] += measured[name][1]
        sums, normalizers = runtime.world.sum_each(sums, normalizers)
        means = {}
        for name in self.metrics:
            keys = {name: [(source, name) for source in self.validation]}
            if len(self.validation) > 1:
                keys |= {f"{name}.{source}": [(source, name)] for source in self.validation}
            for metric, parts in keys.items():
                normalizer = sum(normalizers[part] for part in parts)
                if normalizer:
                    means[metric] = sum(sums[part] for part in parts) / normalizer
        return means

    def measure(self, hidden: Tensor, batch: PackedBatch) -> Ratios:
        """Measure one batch, from hidden (N, hidden) of the kept slots."""
        assert batch.mlm_labels is not None
        weights = self._prediction_weights(batch, hidden.dtype)
        total = total_of_means = correct = 0.0
        for start in range(0, len(batch.mlm_labels), PREDICTIONS_AT_ONCE):
            part = slice(start, start + PREDICTIONS_AT_ONCE)
            labels = batch.mlm_labels[part]
            logits = self.head(hidden[part])
            total += float(cross_entropy_sum(logits, labels))
            if weights is not None:
                total_of_means += float(cross_entropy_sum(logits, labels, weights[part]))
            correct += count_correct(logits, labels)
        predictions = count_labels(batch.mlm_labels)
        measured = {"loss": (total, predictions), "accuracy": (correct, predictions)}
        if weights is not None:
            measured["token_loss"] = measured["loss"]
            measured["loss"] = total_of_means, count_predicted_sequences(batch)
        return measured


class MaskedLMAndPairs(MaskedLM):
    """The objective of BERT and ALBERT: `mlm`, and the term `pair`, a mean over an update's pairs.

    `batch.targets["pair"]`, int64 (S,), has the class of each pair, 0 or 1, and -100 for other sequences.
    """

    watched = ("accuracy", "pair_accuracy")
    head: PretrainingHead

    def __init__(
        self,
        head: PretrainingHead,
        validation: dict[str, list[PackedBatch]],
        loss_mean: LossMean = "tokens",
    ) -> None:
        """See `MaskedLM`."""
        super().__init__(head, validation, loss_mean)
        self.coefficients["pair"] = 1.0
        self.metrics += ["pair_loss", "pair_accuracy"]

    def normalizers(self, batch: PackedBatch) -> Numbers:
        pairs = count_labels(batch.targets["pair"])
        return super().normalizers(batch) | {"pair": pairs, "pair_accuracy": pairs}

    def output_slots(self, batch: PackedBatch) -> Tensor:
        """The first token of each sequence, then the predictions."""
        return torch.cat((batch.first_positions, super().output_slots(batch)))

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> Sums:
        hidden = encoder(batch, layout, output_slots=self.output_slots(batch))
        logits, labels, hidden = self._score_pairs(hidden, batch)
        pairs = {"pair": cross_entropy_sum(logits, labels), "pair_accuracy": count_hits(logits, labels)}
        return self.masked_lm_sums(hidden, batch) | pairs

    def _score_pairs(self, hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of pairs (S, 2), their labels (S,), and the hidden states of predictions (M, hidden)."""
        sequences = batch.offsets.numel() - 1
        return self.head.pair.classify(hidden[:sequences]), batch.targets["pair"], hidden[sequences:]

    def measure(self, hidden: Tensor, batch: PackedBatch) -> Ratios:
        """Measure the metrics of `MaskedLM`, and loss and accuracy of the pairs."""
        logits, labels, hidden = self._score_pairs(hidden, batch)
        pairs = count_labels(labels)
        loss = float(cross_entropy_sum(logits, labels)), pairs
        accuracy = count_correct(logits, labels), pairs
        return super().measure(hidden, batch) | {"pair_loss": loss, "pair_accuracy": accuracy}


def count_correct(logits: Tensor, labels: Tensor) -> float:
    """Count the labels with the highest score: logits (N, classes), labels (N,). The first of tied scores
    wins."""
    return float(((logits.argmax(-1) == labels) & (labels != IGNORED)).sum())


def prediction_weights(batch: PackedBatch, dtype: torch.dtype) -> Tensor:
    """Compute 1 / (predictions of its sequence) for each masked token, (M,) in `dtype`; 0 in unused slots.

    A sum with these factors adds up the means of the sequences, as if each were in a row of its own: a long
    sequence counts no more than a short one (Krell et al. 2021, section 3.2.3).
    """
    sequence, used = _find_sequences(batch)
    predictions = used.new_zeros(batch.offsets.numel() - 1, dtype=dtype)  # of each sequence, (S,)
    predictions = predictions.index_add(0, sequence, used.to(dtype))
    return used / predictions.clamp(min=1).index_select(0, sequence)


def count_predicted_sequences(batch: PackedBatch) -> float:
    """Count the sequences with predictions: the normalizer of a sum with `prediction_weights`."""
    sequence, used = _find_sequences(batch)
    return float(sequence[used].unique().numel())


def _find_sequences(batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """The sequence of each prediction slot, int64 (M,), and whether the slot is used, bool (M,)."""
    assert batch.mlm_positions is not None
    assert batch.mlm_labels is not None
    return batch.sequence_of_token.index_select(0, batch.mlm_positions), batch.mlm_labels != IGNORED
