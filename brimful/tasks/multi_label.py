"""Multi-label classification: any number of labels for each text or pair of texts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.errors import BrimfulError
from brimful.objectives.losses import class_imitation
from brimful.precision.policy import widen
from brimful.tables.label_lists import known_parts
from brimful.tables.table import Table
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import Row
from brimful.tasks.label_sets import LabelSets
from brimful.tasks.task import LEAST, Metric, Task
from brimful.types import Imitation


@dataclass(frozen=True)
class MultiLabel(LabelSets, Task):
    """Labels that do not exclude each other; the loss is the binary cross-entropy, a mean over labels."""

    metrics = (
        Metric("micro_f1", "micro-averaged F1", percent=True),
        Metric("macro_f1", "macro-averaged F1", percent=True),
        Metric("exact", "share of texts with exactly the right labels", percent=True),
    )
    sentence = "The labels of {texts} are found with a micro-averaged F1 of {primary}."

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
        """`labels`, float32 (n, labels): 1 where a text has the label."""
        assert table.labels is not None
        index = {name: i for i, name in enumerate(self.labels)}
        wanted = np.zeros((len(table), len(self.labels)), dtype=np.float32)
        for row, labels in enumerate(table.labels):
            for label in labels:
                for name in [label] if label in index else known_parts(label, index) or [label]:
                    wanted[row, table.label_index(row, name, index)] = 1
        return {"labels": wanted}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        wanted, outputs = batch.targets["labels"], widen(outputs)
        known = wanted.nan_to_num().to(outputs)
        losses = F.binary_cross_entropy_with_logits(outputs, known, reduction="none")
        return {self.name: torch.where(wanted.isnan(), 0.0, losses).sum() / len(self.labels)}

    def imitation(self, loss: Imitation, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        """soft: the mean over the labels of the binary cross-entropy with the teacher's probability; kl: less
        the teacher's entropy, times the temperature squared."""
        if loss == "mse":
            return class_imitation(loss, temperature)
        scale = temperature**2 if loss == "kl" else 1.0

        def cross_entropy(ours: Tensor, theirs: Tensor) -> Tensor:
            target = torch.sigmoid(theirs / temperature)
            total = F.binary_cross_entropy_with_logits(ours / temperature, target, reduction="sum")
            if loss == "kl":
                total = total - F.binary_cross_entropy_with_logits(
                    theirs / temperature, target, reduction="sum"
                )
            return scale * total / len(self.labels)

        return cross_entropy

    def outputs_of(self, scores: np.ndarray) -> np.ndarray:
        """Log-odds of the probabilities."""
        known = np.clip(scores, LEAST, 1 - LEAST)
        return np.log(known / (1 - known)).astype(np.float32)

    def measure(self, answers: np.ndarray, data: Encoded) -> dict[str, float]:
        """F1 of all decisions together, and averaged over labels, where one without any text counts as 0."""
        wanted, found = data.targets["labels"] > 0.5, answers > 0
        hits, wrong = (wanted & found).sum(0), (wanted ^ found).sum(0)
        each = 2 * hits / np.maximum(2 * hits + wrong, 1)
        return {
            "micro_f1": float(2 * hits.sum() / max(2 * hits.sum() + wrong.sum(), 1)),
            "macro_f1": float(each.mean()),
            "exact": float((wanted == found).all(1).mean()),
            "n": len(data),
        }

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """As those of `LabelSets`, in torch's rounding."""
        return torch.sigmoid(torch.from_numpy(answers)).numpy()

    def compared_rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`label` and `prediction`, both lists."""
        assert data.table.labels is not None
        rows = zip(data.table.labels, self.found(answers)[0], strict=True)
        return [{"label": wanted, "prediction": found} for wanted, found in rows]


TASK = MultiLabel
