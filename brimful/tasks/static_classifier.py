"""A static model in the place of a task model: the same tables in, the same rows out."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.errors import BrimfulError
from brimful.precision.formats import Precision
from brimful.tables.table import Table, require_pairs
from brimful.tasks.classification import Classification
from brimful.tasks.encoded import Encoded
from brimful.tasks.model import predicted_rows
from brimful.tasks.static import StaticModel, token_ids
from brimful.tasks.task import Row


@dataclass(frozen=True)
class StaticClassifier:
    """A static model with its task, used as a `TaskModel`.

    Attributes:
        max_length: tokens that are read of a text, without special tokens.
        overlap: always None. A longer text is cut.
    """

    task: Classification
    model: StaticModel
    max_length: int
    overlap: int | None = None

    def __post_init__(self) -> None:
        if self.overlap is not None:
            raise BrimfulError("a static model reads no windows; leave --overlap out")
        if self.max_length < 1:
            raise BrimfulError(f"max_length is {self.max_length}: it must be at least 1")

    @classmethod
    def load(cls, folder: Path) -> "StaticClassifier":
        """The static model in a folder.

        Raises:
            BrimfulError: as `StaticModel.load`.
        """
        model = StaticModel.load(folder)
        return cls(Classification.from_labels(list(model.labels)), model, model.max_length)

    def to(self, device: torch.device) -> "StaticClassifier":
        """The model itself. It computes on the CPU."""
        return self

    def encode(self, table: Table) -> Encoded:
        """The token ids of each row, without special tokens.

        Raises:
            BrimfulError: the table has pairs.
        """
        require_pairs(table, False, "the model's training table")
        texts = token_ids(self.model.tokenizer, table.texts, self.max_length + 1)
        ids = Ragged.of([text[: self.max_length] for text in texts], np.int32)
        types = Ragged.of([np.zeros(len(text), dtype=np.uint8) for text in ids], np.uint8)
        cut = sum(len(text) > self.max_length for text in texts)
        return Encoded(table, Examples(ids, types, {}, self.max_length, pad=0, cut=cut))

    def answers(self, data: Encoded, precision: Precision) -> np.ndarray:
        """float32 (n, labels): logits, in float32 whatever the precision."""
        return self.model.logits(list(data.examples.tokens))

    def rows(self, data: Encoded, precision: Precision, *, scores: bool = False) -> list[Row]:
        """A prediction for each row; as `TaskModel.rows`."""
        return predicted_rows(self.task, self.answers(data, precision), data, scores=scores)
