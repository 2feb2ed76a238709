"""What `brimful predict` reads and writes: a task model's predictions, or an encoder's vectors."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.serving.config import PredictConfig
from brimful.serving.opened import ServedEncoder, ServedTask
from brimful.tables.layouts import FileLayout, require_task
from brimful.tables.table import Table, Take
from brimful.tables.table_files import read_file, read_texts
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import Row, predicted_rows
from brimful.tasks.output import ARRAYS, Output


class Predictions:
    """A task model, which writes predictions."""

    def __init__(self, model: ServedTask, config: PredictConfig, layout: FileLayout) -> None:
        self.config = config
        self.layout = layout
        self.model = model
        require_task(layout, model.task.name)
        if config.pooling != "auto":
            raise BrimfulError(f"--pooling is for encoders; {config.model} pools as it was trained")
        if config.abstain_below is not None and not model.task.abstains:
            raise BrimfulError(f"abstain_below is for classification; {config.model} does {model.task.name}")
        self.array, self.numbers = Path(config.output).suffix == ARRAYS, count(1)
        if self.array and config.abstain_below is not None:
            raise BrimfulError(f"{config.output} holds scores and no labels; leave --abstain-below out")
        if self.array or config.scores:
            model.task.scores(np.zeros((0, len(model.task.labels)), dtype=np.float32))
        self.overlap = model.overlap
        self.facts = model.task.facts
        self.found: dict[str, Any] = {} if config.abstain_below is None else {"abstained": 0}
        if self.array:
            self.found["columns"] = list(model.task.labels)

    def read(self, take: Take) -> Table:
        return read_file(self.model.task, self.config.input, labelled=False, layout=self.layout, take=take)

    def write(self, data: Encoded, output: Output) -> None:
        answers = self.model.answers(self.model.outputs(data.examples), data)
        if self.array:
            output.vectors("scores", self.model.task.scores(answers))
            return
        rows = predicted_rows(self.model.task, answers, data, scores=self.config.scores)
        if self.config.scores:
            rows = [text | row for text, row in zip(_texts(data.table), rows, strict=True)]
        if self.config.abstain_below is not None:
            rows = abstain(rows, self.config.abstain_below)
            self.found["abstained"] += sum(row["abstained"] for row in rows)
        output.rows([{"row": next(self.numbers)} | row for row in rows])


class Vectors:
    """An encoder, which writes a vector for each text."""

    def __init__(self, model: ServedEncoder, config: PredictConfig, layout: FileLayout) -> None:
        self.config = config
        self.layout = layout
        self.model = model
        labelled = {"--scores": config.scores, "--abstain-below": config.abstain_below is not None}
        for option in (option for option, given in labelled.items() if given):
            raise BrimfulError(f"{config.model} is an encoder, which gives vectors; leave {option} out")
        self.overlap = config.overlap
        self.facts = {"width": model.width}
        self.found: dict[str, Any] = {}

    def read(self, take: Take) -> Table:
        return read_texts(self.config.input, self.layout, take)

    def write(self, data: Encoded, output: Output) -> None:
        output.vectors("vector", self.model.answers(self.model.outputs(data.examples), data))


def _texts(table: Table) -> list[Row]:
    """The texts of each row, by column."""
    columns = {"text": table.texts} | ({} if table.second is None else {"text_b": table.second})
    return [dict(zip(columns, texts, strict=True)) for texts in zip(*columns.values(), strict=True)]


def abstain(rows: Sequence[Row], below: float) -> list[Row]:
    """Rows with `abstained`: whether the probability is under `below`, and the prediction but a guess."""
    return [row | {"abstained": row["probability"] < below} for row in rows]
