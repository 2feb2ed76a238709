"""Token classification: labelled spans of each text, such as the names in it, as `spans` finds them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from torch import Tensor

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.cross_entropy import cross_entropy_sum
from brimful.model.encoder import Encoder
from brimful.model.heads import TokenHead
from brimful.objectives.losses import class_imitation, count
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded, trim_spaces
from brimful.tasks.prediction_form import Row
from brimful.tasks.span_form import Found, Spans, list_tag_names, tag_tokens
from brimful.tasks.task import Metric, Task


@dataclass(frozen=True)
class TokenClassification(Spans, Task):
    """Spans with labels; the loss is the cross-entropy of BIO tags, a mean over tokens."""

    metrics = (
        Metric("f1", "F1", percent=True),
        Metric("precision", "precision", percent=True),
        Metric("recall", "recall", percent=True),
    )
    overlap = 32

    @classmethod
    def from_table(cls, table: Table) -> Self:
        assert table.labels is not None
        labels = sorted({span.label for spans in table.labels for span in spans})
        if not labels:
            raise BrimfulError(f"{table.path} has no span; there is nothing to learn")
        return cls(list_tag_names(labels))

    @property
    def description(self) -> str:
        return f"spans of {len(self.kinds)} labels ({', '.join(self.kinds[:8])})"

    def new_head(self, encoder: Encoder) -> TokenHead:
        return TokenHead(encoder, len(self.labels))

    def example_targets(self, table: Table, examples: Examples) -> dict[str, np.ndarray | Ragged]:
        """`tags`, the BIO tag of each token of each example; none of special tokens and of those without
        characters.

        What is trained has the tags of BIO; a model with others is only measured, by its spans.
        """
        assert table.labels is not None
        assert examples.characters is not None
        index = {label: i for i, label in enumerate(self.kinds)}
        tags: list[np.ndarray] = []
        lost = 0
        bounds = [*examples.first_of_text.tolist(), len(examples)]
        for row, (spans, (first, end)) in enumerate(zip(table.labels, pairwise(bounds), strict=True)):
            ordered = [
                (span.start, span.end, 2 * table.label_index(row, span.label, index) + 2)
                for span in sorted(spans)
            ]
            edges = np.array(ordered, dtype=np.int64).reshape(-1, 3)
            starts, ends = set[int](), set[int]()
            for places in (examples.characters[example] for example in range(first, end)):
                inside = np.flatnonzero(places[:, 0] >= 0)
                words = trim_spaces(places[inside], table.texts[row])
                kept = words[:, 0] < words[:, 1]
                tags.append(np.full(len(places), IGNORED, dtype=np.int64))
                tags[-1][inside[kept]] = tag_tokens(edges, words[kept])
                starts.update(words[:, 0].tolist())
                ends.update(words[:, 1].tolist())
            lost += sum(span.start not in starts or span.end not in ends for span in spans)
        if lost:
            total = sum(map(len, table.labels))
            warn(
                f"{lost:,} of {total:,} spans of {table.path} begin or end within a token, so no"
                " prediction can equal them"
            )
        return {"tags": Ragged.of(tags, np.int64)}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        return {self.name: cross_entropy_sum(outputs, batch.targets["tags"])}

    def count(self, batch: PackedBatch) -> float:
        return count(batch.targets["tags"])

    def imitation(self, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        return class_imitation(temperature)

    def measure(self, answers: list[list[Found]], data: Encoded) -> dict[str, float]:
        """Precision, recall and F1 of whole spans over all texts together, as in conlleval and seqeval."""
        assert data.table.labels is not None
        pairs = [
            ({f.span for f in found}, set(gold))
            for found, gold in zip(answers, data.table.labels, strict=True)
        ]
        right = sum(len(found & gold) for found, gold in pairs)
        predicted, wanted = (sum(map(len, sets)) for sets in zip(*pairs, strict=True))
        return {
            "f1": 2 * right / max(predicted + wanted, 1),
            "precision": right / max(predicted, 1),
            "recall": right / max(wanted, 1),
            "spans": wanted,
            "n": len(data),
        }

    def compare_rows(self, answers: list[list[Found]], data: Encoded) -> list[Row]:
        """The text, its spans as `gold`, and the predicted ones as `prediction`."""
        assert data.table.labels is not None
        rows = zip(data.table.texts, data.table.labels, self.rows(answers, data), strict=True)
        return [{"text": text, "gold": gold, "prediction": row["prediction"]} for text, gold, row in rows]
