"""The verb `brimful predict`: a prediction for each text, in the order of the input."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brimful.commands.predict_config import PredictConfig
from brimful.config import verb
from brimful.console import progress, recorded_warnings, warn
from brimful.data.examples import check_length
from brimful.device import default_device
from brimful.errors import BrimfulError
from brimful.hf.folders import load_encoder, naming_weights
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.precision.formats import Precision
from brimful.precision.policy import resolve
from brimful.tables.layouts import FileLayout, find_layout, require_task
from brimful.tables.slices import read_slices
from brimful.tables.table import Table, Take
from brimful.tables.table_files import read_file, read_texts
from brimful.tasks.encoded import Encoded, encode, warn_of_lost_ends
from brimful.tasks.model import TaskModel, load_task_model
from brimful.tasks.output import ARRAYS, FORMATS, Output, output_file
from brimful.tasks.task import Row


class _Tasked:
    """A task model, which writes predictions."""

    def __init__(self, folder: ModelFolder, config: PredictConfig, layout: FileLayout) -> None:
        self.config = config
        self.layout = layout
        loaded: Any
        if folder.is_static:
            from brimful.tasks.static_classifier import StaticClassifier

            loaded = StaticClassifier.load(folder.path)
        else:
            loaded = load_task_model(folder)
        require_task(layout, loaded.task.name)
        if config.pooling != "auto":
            raise BrimfulError(f"--pooling is for encoders; {config.model} pools as it was trained")
        if config.abstain_below is not None and not loaded.task.abstains:
            raise BrimfulError(
                f"abstain_below is for classification; the task of {config.model} is {loaded.task.name}"
            )
        self.model = replace(
            loaded,
            max_length=loaded.max_length if config.max_length is None else config.max_length,
            overlap=loaded.overlap if config.overlap is None else config.overlap,
        )
        self.array = Path(config.output).suffix == ARRAYS
        if self.array and config.abstain_below is not None:
            raise BrimfulError(f"{config.output} holds scores and no labels; leave --abstain-below out")
        if self.array or config.scores:
            self.model.task.scores(np.zeros((0, len(self.model.task.labels)), dtype=np.float32))
        self.max_length, self.overlap = self.model.max_length, self.model.overlap
        self.windows = isinstance(self.model, TaskModel)
        if isinstance(self.model, TaskModel):
            check_length(self.max_length, self.model.encoder.config.max_length)
        self.facts = self.model.task.facts
        self.found: dict[str, int] = {} if config.abstain_below is None else {"abstained": 0}

    def to(self, device: torch.device) -> None:
        self.model.to(device)

    def read(self, take: Take) -> Table:
        return read_file(self.model.task, self.config.input, labelled=False, layout=self.layout, take=take)

    def encode(self, table: Table) -> Encoded:
        return self.model.encode(table)

    def write(self, data: Encoded, precision: Precision, output: Output) -> None:
        if self.array:
            output.vectors("scores", self.model.task.scores(self.model.answers(data, precision)))
            return
        rows = self.model.rows(data, precision, scores=self.config.scores)
        if self.config.scores:
            rows = [text | row for text, row in zip(_texts(data.table), rows, strict=True)]
        if self.config.abstain_below is not None:
            rows = abstain(rows, self.config.abstain_below)
            self.found["abstained"] += sum(row["abstained"] for row in rows)
        output.rows(rows)


def _texts(table: Table) -> list[Row]:
    """The texts of each row, by column."""
    if table.second is None:
        return [{"text": text} for text in table.texts]
    return [{"text": a, "text_b": b} for a, b in zip(table.texts, table.second, strict=True)]


class _Vectors:
    """An encoder, which writes a vector for each text: of a long text in windows, the mean of theirs."""

    windows = True
    """Whether it can read long texts in windows."""

    def __init__(self, folder: ModelFolder, config: PredictConfig, layout: FileLayout) -> None:
        self.config = config
        self.layout = layout
        self.found: dict[str, int] = {}
        self.encoder = load_encoder(folder, Encoder)
        if self.encoder.tokenizer is None:
            raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
        labelled = {
            "--scores": config.scores,
            "--abstain-below": config.abstain_below is not None,
        }
        for option in (option for option, given in labelled.items() if given):
            raise BrimfulError(f"{config.model} is an encoder, which gives vectors; leave {option} out")
        if others := folder.other_modules(classifier=False):
            warn(f"{config.model}: the vectors are without {', '.join(others)}, which is not read")
        self.pooling = None if config.pooling == "auto" else config.pooling
        length = folder.text_length(self.encoder.config)
        self.max_length = length if config.max_length is None else config.max_length
        self.overlap = config.overlap
        check_length(self.max_length, self.encoder.config.max_length)
        self.facts = {"width": self.encoder.config.hidden_size}

    def to(self, device: torch.device) -> None:
        self.encoder.to(device)

    def read(self, take: Take) -> Table:
        return read_texts(self.config.input, self.layout, take)

    def encode(self, table: Table) -> Encoded:
        assert self.encoder.tokenizer is not None
        return encode(table, self.encoder.tokenizer, self.max_length, overlap=self.config.overlap)

    def write(self, data: Encoded, precision: Precision, output: Output) -> None:
        vectors = text_vectors(self.encoder, data.examples, pooling=self.pooling, precision=precision)
        output.vectors("vector", vectors)


@verb(PredictConfig)
def predict(config: PredictConfig) -> dict[str, Any]:
    """Write a prediction for each text: the columns that the model's task has, such as label and probability.

    Probabilities are calibrated if the model's config.json has a temperature, which finetune fits on dev.
    With an encoder, the column is `vector`. The input may be of any size: it is read twice, first to check
    every row, then in slices. The output gets its name when it is complete.

    Returns:
        the number of texts, real tokens per second, and the output's path.

    Raises:
        BrimfulError: the folder holds no model that can predict, the input is not a table of texts, the
            output's format is unknown or it cannot be written, or torch's build does not serve the GPU.
    """
    output, layout = Path(config.output), find_layout(config.layout, config.columns)
    if output.suffix not in (*FORMATS, ARRAYS):
        raise BrimfulError(f"--output {output}: the name must end in {', '.join((*FORMATS, ARRAYS))}")
    if os.path.realpath(output) == os.path.realpath(config.input):
        raise BrimfulError(f"--output {output} is the input; name another file")
    device = default_device()
    precision = resolve(config.precision, device)
    folder = ModelFolder.open(config.model, "model")
    with_task = folder.is_static or folder.has_task
    model = (_Tasked if with_task else _Vectors)(folder, config, layout)
    texts, empty = 0, True
    for table in read_slices(model.read):
        # A first text can be too long, and windows can be impossible.
        crowds = table.second is not None and (model.overlap is not None or not model.windows)
        if len(table) and (crowds or not texts):
            model.encode(table if crowds else table.take([0]))
        texts, empty = texts + len(table), empty and not any(table.texts)
    if empty and Path(config.input).suffix == ".txt":
        raise BrimfulError(f"{config.input} holds no text; expected one text a line")
    if config.dry_run:
        return {"dry_run": True, "texts": texts, **model.facts}
    model.to(device)
    started = time.perf_counter()
    tokens = cut = 0
    with output_file(output, texts) as file, progress("predict: texts", texts) as advance:
        for table in read_slices(lambda take: _quietly(model.read, take)):
            data = model.encode(table)
            with naming_weights(folder):
                model.write(data, precision, file)
            tokens += int(data.examples.lengths.sum())
            cut += data.examples.cut
            advance(len(table))
    warn_of_lost_ends(cut, texts, config.input, model.max_length, windows=model.windows)
    seconds = time.perf_counter() - started
    return {
        "texts": texts,
        **model.found,
        "tokens_per_second": tokens / seconds,
        "seconds": seconds,
        "output": str(output),
    }


def _quietly(read: Callable[[Take], Table], take: Take) -> Table:
    """A slice of a file whose warnings were printed when it was checked."""
    with recorded_warnings():
        return read(take)


def abstain(rows: Sequence[Row], below: float) -> list[Row]:
    """Rows of predictions, with an empty label where the probability is under `below`."""
    kept = [row["probability"] >= below for row in rows]
    return [
        {**row, "label": row["label"] if keep else "", "abstained": not keep}
        for row, keep in zip(rows, kept, strict=True)
    ]
