"""What `predict` and `serve` need of a model, whatever computes it, and what `predict` writes with it.

A module of this folder opens each kind of model: `static` with numpy and `onnx` with onnxruntime, both
without torch; `packed`, with torch, what has weights of its own.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.data.examples import Examples
from brimful.hf.model_folder import ModelFolder
from brimful.prediction.config import Opening, PredictConfig
from brimful.tables.layouts import FileLayout, require_task
from brimful.tables.table import Table, Take
from brimful.tables.table_files import read_file, read_texts
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.form import Outputs, PredictionForm, Row, predicted_rows
from brimful.tasks.output import ARRAYS, Output

_GRAPHS = ("onnx/model.onnx", "onnx/model_quantized.onnx", "model.onnx", "openvino/openvino_model.xml")
"""Where an export to ONNX or OpenVINO has its graph; that of ONNX until 0.2.0 at the top."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that is open.

    Attributes:
        max_length, overlap: as in `tasks.model.TaskModel`.
        tokenizer: of its texts.
        outputs: of each example.
        precision: the number format of the computation; auto: as the runtime of the export chooses.
        threads: of the computation, which callers at the same time may divide among them.
        on_threads: a context in which the calling thread computes on `count` threads.
    """

    max_length: int
    overlap: int | None
    tokenizer: Tokenizer
    outputs: Callable[[Examples], Any]
    precision: str
    threads: int = 1
    on_threads: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()


@dataclass(frozen=True, kw_only=True)
class ServedTask(Served):
    """A task model.

    Attributes:
        windows: whether it can read long texts in windows.
        encode: the examples of a table, read by a tokenizer such as `tokenizer`; their windows share so many
            tokens, or None: texts are cut.
        answers: one answer for each row of a table, calibrated, from the outputs of its examples.
        pairs: whether it reads pairs of texts, if known.
        markers: whether the model's own tokens stand around a text.
    """

    task: PredictionForm
    windows: bool = True
    encode: Callable[[Table, int | None, Tokenizer], Encoded]
    answers: Callable[[Outputs, Encoded], Any]
    pairs: bool | None = None
    markers: bool = True


@dataclass(frozen=True, kw_only=True)
class ServedEncoder(Served):
    """An encoder; its outputs are vectors, float32 (n, width), in answers of length 1 if they are `unit`.
    `prompt` stands before each text, and is read with it."""

    width: int
    unit: bool = False
    prompt: str = ""

    def encode(self, table: Table, overlap: int | None, tokenizer: Tokenizer) -> Encoded:
        """The examples of a table, as of a task model."""
        return encode(table, tokenizer, self.max_length, overlap=overlap, prompt=self.prompt)

    def answers(self, outputs: np.ndarray, data: Encoded) -> np.ndarray:
        """float32 (texts, width); of a text in windows, the mean of theirs."""
        found = data.examples.mean_over_windows(outputs)
        if self.unit:  # which a mean is not
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-12))
        return found


def graph_file(folder: ModelFolder) -> Path:
    """Where the graph of an export to ONNX or OpenVINO is."""
    places = [folder.path / name for name in _GRAPHS]
    return next((place for place in places if place.is_file()), places[0])


def is_graph(folder: ModelFolder) -> bool:
    """Whether a file of ONNX or OpenVINO holds the model: it has no weights of its own."""
    weights = (*folder.path.glob("*.safetensors*"), *folder.path.glob("pytorch_model*"))
    return graph_file(folder).is_file() and not weights


def open_served(opening: Opening) -> ServedTask | ServedEncoder:
    """The model in a folder, opened by the module that computes it.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, or a package that
            computes it is missing.
    """
    folder = ModelFolder.open(opening.model, "model")
    engine = "static" if folder.is_static else "onnx" if is_graph(folder) else "packed"
    found: ServedTask | ServedEncoder = import_module(f"brimful.prediction.{engine}").open_model(
        folder, opening
    )
    return found


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
        self.overlap, self.windows = model.overlap, model.windows
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

    windows = True

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
