"""Token classification: labelled spans of each text, such as the names in it, as `spans` finds them."""

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Self

import numpy as np
from numpy import ndarray
from torch import Tensor

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED, Numbers
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.cross_entropy import count_labels, cross_entropy_sum
from brimful.model.encoder import Encoder
from brimful.model.heads import TokenHead
from brimful.objectives.losses import make_class_imitation
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import Row
from brimful.tasks.span_form import Found, Spans, list_tag_names
from brimful.tasks.task import Metric, Task
from brimful.tasks.token_places import tag_tokens, trim_spaces


@dataclass(frozen=True)
class TokenClassification(Spans, Task):
    """Spans with labels; the loss is the cross-entropy of BIO tags, a mean over tokens."""

    metrics = (
        Metric("f1", "F1", percent=True),
        Metric("precision", "precision", percent=True),
        Metric("recall", "recall", percent=True),
    )
    overlap = 32
    imitation = staticmethod(make_class_imitation)

    @classmethod
    def from_table(cls, table: Table) -> Self:
        labels = {span.label for span in chain.from_iterable(table.labels or ())}
        if not labels:
            raise BrimfulError(f"{table.path} has no span; there is nothing to learn")
        return cls(list_tag_names(sorted(labels)))

    @property
    def description(self) -> str:
        return f"spans of {len(self.kinds)} labels ({', '.join(self.kinds[:8])})"

    def new_head(self, encoder: Encoder) -> TokenHead:
        return TokenHead(encoder, len(self.labels))

    def example_targets(self, table: Table, examples: Examples) -> dict[str, ndarray | Ragged]:
        """Return `tags`, the BIO tag of each token; special tokens and tokens without characters have none.

        What is trained has the tags of BIO; a model with others is only measured, by its spans.
        """
        assert table.labels is not None
        assert examples.characters is not None
        index = {label: i for i, label in enumerate(self.kinds)}
        tags: list[ndarray] = []
        lost = total = 0
        # Windows of text i: bounds[i] to bounds[i + 1].
        bounds = [*examples.first_of_text.tolist(), len(examples)]
        for row, (spans, (first, end)) in enumerate(zip(table.labels, pairwise(bounds), strict=True)):
            tagged_spans = np.zeros((len(spans), 3), dtype=np.int64)  # start, end, the tag that continues it
            for place, span in enumerate(sorted(spans)):
                tag = 2 * table.label_index(row, span.label, index) + 2
                tagged_spans[place] = span.start, span.end, tag
            starts, ends = set[int](), set[int]()
            for example in range(first, end):
                places = examples.characters[example]  # (tokens, 2)
                is_text = np.flatnonzero(places[:, 0] >= 0)
                words = trim_spaces(places[is_text], table.texts[row])
                is_filled = words[:, 0] < words[:, 1]
                tags.append(np.full(len(places), IGNORED, dtype=np.int64))
                tags[-1][is_text[is_filled]] = tag_tokens(tagged_spans, words[is_filled])
                starts.update(words[:, 0].tolist())
                ends.update(words[:, 1].tolist())
            total += len(spans)
            lost += sum(span.start not in starts or span.end not in ends for span in spans)
        if lost:
            warn(
                f"{lost:,} of {total:,} spans of {table.path} begin or end within a token, so no"
                " prediction can equal them"
            )
        return {"tags": Ragged.of(tags, np.int64)}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        return {self.name: cross_entropy_sum(outputs, batch.targets["tags"])}

    def count(self, batch: PackedBatch) -> float:
        return count_labels(batch.targets["tags"])

    def measure(self, answers: list[list[Found]], data: Encoded) -> Numbers:
        """Return precision, recall and F1 of whole spans in all texts together, as conlleval and seqeval."""
        right = predicted = labelled = 0
        for spans, gold in zip(answers, data.labels, strict=True):
            predicted_spans, gold_spans = {span for span, _ in spans}, set(gold)
            right += len(predicted_spans & gold_spans)
            predicted += len(predicted_spans)
            labelled += len(gold_spans)
        return {
            "f1": 2 * right / max(predicted + labelled, 1),
            "precision": right / max(predicted, 1),
            "recall": right / max(labelled, 1),
            "spans": labelled,
            "n": len(data),
        }

    def compare_rows(self, answers: list[list[Found]], data: Encoded) -> list[Row]:
        """Return the text, its spans as `gold`, and the predicted ones as `prediction`."""
        rows = []
        for row, gold, text in zip(self.rows(answers, data), data.labels, data.table.texts, strict=True):
            rows.append({"text": text, "gold": gold, "prediction": row["prediction"]})
        return rows
