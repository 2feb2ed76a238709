"""Multi-label classification: any number of labels for each text or pair of texts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import Numbers
from brimful.data.batch import PackedBatch
from brimful.objectives.losses import Imitation
from brimful.precision.policy import widen
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded, Targets
from brimful.tasks.label_forms import LabelSets
from brimful.tasks.task import Metric, RowsMetric, Task


@dataclass(frozen=True)
class MultiLabel(LabelSets, Task):
    """Labels that do not exclude each other; the loss is the binary cross-entropy, a mean over labels."""

    metrics = (
        Metric("micro_f1", "micro-averaged F1", percent=True),
        Metric("macro_f1", "macro-averaged F1", percent=True),
        Metric("exact", "share of texts with exactly the right labels", percent=True),
    )

    @classmethod
    def from_table(cls, table: Table) -> Self:
        labels = sorted(set().union(*table.labels or ()))
        if not labels:
            raise BrimfulError(f"{table.path}: no text has a label; there is nothing to learn")
        return cls(labels)

    @property
    def description(self) -> str:
        return f"any of {len(self.labels)} labels ({', '.join(self.labels[:8])})"

    def targets(self, table: Table) -> Targets:
        """Return `labels`, uint8 (n, 1 + labels // 8), as bits: the first is set, since the row has a target,
        then a bit for each label. In float32, 500,000 rows of 1,000 labels would be 2 GB, and not 63 MB."""
        place = {name: i for i, name in enumerate(self.labels, 1)}
        bits = np.zeros((len(table), 1 + len(self.labels) // 8), dtype=np.uint8)
        bits[:, 0] = 128
        for row, labels in enumerate(table.labels or ()):
            for label in labels:
                byte, bit = divmod(table.label_index(row, label, place), 8)
                bits[row, byte] |= 128 >> bit
        return {"labels": bits}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        outputs, packed = widen(outputs), batch.targets["labels"]
        shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
        # (S, bytes) -> (S, bytes, 8) -> (S, 1 + labels)
        bits = ((packed[..., None] >> shifts) & 1).flatten(1)[:, : 1 + len(self.labels)]
        losses = F.binary_cross_entropy_with_logits(outputs, bits[:, 1:].to(outputs), reduction="none")
        # Filler has no first bit.
        return {self.name: torch.where(bits[:, :1] > 0, losses, 0.0).sum() / len(self.labels)}

    def imitation(self, temperature: float) -> Imitation:
        """Return the binary cross-entropy with the teacher's probability, a mean over labels."""

        def cross_entropy(ours: Tensor, theirs: Tensor) -> Tensor:
            target = torch.sigmoid(theirs / temperature)
            total = F.binary_cross_entropy_with_logits(ours / temperature, target, reduction="sum")
            return total / len(self.labels)

        return cross_entropy

    def measure(self, answers: ndarray, data: Encoded) -> Numbers:
        """Return F1 of all decisions together, and averaged over labels; one without any text counts as 0."""
        return self._make_metrics(answers, data)(np.arange(len(data))) | {"n": len(data)}

    def make_primary(self, answers: ndarray, data: Encoded) -> RowsMetric:
        measure_rows, name = self._make_metrics(answers, data), self.metrics[0].name
        return lambda rows: measure_rows(rows)[name]

    def _make_metrics(self, answers: ndarray, data: Encoded) -> Callable[[ndarray], Numbers]:
        """The metrics as a function of rows. Only hits and errors are kept of all decisions: they are few."""
        gold, predicted = unpack_labels(data.targets["labels"], len(self.labels)), answers > 0
        hits = sparse.csr_array(gold & predicted, dtype=np.int64)  # (n, labels)
        errors = sparse.csr_array(gold ^ predicted, dtype=np.int64)
        is_exact = np.diff(errors.indptr) == 0

        def measure_rows(rows: ndarray) -> Numbers:
            times = np.bincount(rows, minlength=len(data))  # how often each row counts
            right, wrong = times @ hits, times @ errors  # (labels,)
            f1 = 2 * right / np.maximum(2 * right + wrong, 1)
            return {
                "micro_f1": float(2 * right.sum() / max(2 * right.sum() + wrong.sum(), 1)),
                "macro_f1": float(f1.mean()),
                "exact": float(times @ is_exact / len(rows)),
            }

        return measure_rows


def unpack_labels(bits: ndarray, labels: int) -> ndarray:
    """Return which labels each row has, bool (n, labels), from the bits of `MultiLabel.targets`."""
    return np.unpackbits(bits, axis=1, count=1 + labels)[:, 1:].view(bool)
