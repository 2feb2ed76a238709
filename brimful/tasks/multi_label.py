"""Multi-label classification: any number of labels for each text or pair of texts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch
from brimful.precision.policy import widen
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.label_set_form import LabelSets
from brimful.tasks.prediction_form import Row
from brimful.tasks.task import Metric, Task


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
        assert table.labels is not None
        labels = sorted({label for row in table.labels for label in row})
        if not labels:
            raise BrimfulError(f"{table.path}: no text has a label; there is nothing to learn")
        return cls(labels)

    @property
    def description(self) -> str:
        return f"any of {len(self.labels)} labels ({', '.join(self.labels[:8])})"

    def targets(self, table: Table) -> dict[str, np.ndarray]:
        """`labels`, uint8 (n, 1 + labels // 8), bits: of each row the first is set, since it has a target,
        then a bit for each label. 500,000 rows of 1,000 labels are 63 MB, and would be 2 GB in float32."""
        assert table.labels is not None
        place = {name: i for i, name in enumerate(self.labels, 1)}
        bits = np.zeros((len(table), 1 + len(self.labels) // 8), dtype=np.uint8)
        bits[:, 0] = 128
        for row, labels in enumerate(table.labels):
            for label in labels:
                byte, bit = divmod(table.label_index(row, label, place), 8)
                bits[row, byte] |= 128 >> bit
        return {"labels": bits}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        outputs, packed = widen(outputs), batch.targets["labels"]
        shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
        bits = ((packed[..., None] >> shifts) & 1).flatten(1)[:, : 1 + len(self.labels)]
        losses = F.binary_cross_entropy_with_logits(outputs, bits[:, 1:].to(outputs), reduction="none")
        return {self.name: torch.where(bits[:, :1] > 0, losses, 0.0).sum() / len(self.labels)}

    def imitation(self, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        """The mean over the labels of the binary cross-entropy with the teacher's probability."""

        def cross_entropy(ours: Tensor, theirs: Tensor) -> Tensor:
            target = torch.sigmoid(theirs / temperature)
            total = F.binary_cross_entropy_with_logits(ours / temperature, target, reduction="sum")
            return total / len(self.labels)

        return cross_entropy

    def measure(self, answers: np.ndarray, data: Encoded) -> dict[str, float]:
        """F1 of all decisions together, and averaged over labels, where one without any text counts as 0."""
        return self._measured(answers, data)(np.arange(len(data))) | {"n": len(data)}

    def make_primary(self, answers: np.ndarray, data: Encoded) -> Callable[[np.ndarray], float]:
        measured, name = self._measured(answers, data), self.metrics[0].name
        return lambda rows: measured(rows)[name]

    def _measured(self, answers: np.ndarray, data: Encoded) -> Callable[[np.ndarray], dict[str, float]]:
        """The metrics as a function of rows: of decisions, only those for a label, and errors, are kept."""
        wanted, found = unpack_labels(data.targets["labels"], len(self.labels)), answers > 0
        hits, wrong = (sparse.csr_array(each, dtype=np.int64) for each in (wanted & found, wanted ^ found))
        exact = np.diff(wrong.indptr) == 0

        def measured(rows: np.ndarray) -> dict[str, float]:
            times = np.bincount(rows, minlength=len(data))
            right, missed = times @ hits, times @ wrong
            each = 2 * right / np.maximum(2 * right + missed, 1)
            return {
                "micro_f1": float(2 * right.sum() / max(2 * right.sum() + missed.sum(), 1)),
                "macro_f1": float(each.mean()),
                "exact": float(times @ exact / len(rows)),
            }

        return measured

    def compare_rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`gold` and `prediction`, both lists."""
        assert data.table.labels is not None
        rows = zip(data.table.labels, self.found(answers)[0], strict=True)
        return [{"gold": wanted, "prediction": found} for wanted, found in rows]


def unpack_labels(bits: np.ndarray, labels: int) -> np.ndarray:
    """bool (n, labels), which labels each row has, of the bits of `MultiLabel.targets`."""
    return np.unpackbits(bits, axis=1, count=1 + labels)[:, 1:].view(bool)
