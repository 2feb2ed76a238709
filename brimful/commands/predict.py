"""The verb `brimful predict`: a prediction for each text, in the order of the input."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brimful.config import verb
from brimful.console import progress
from brimful.distributed import default_device
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import Pooling, pool
from brimful.nn.interop import load_encoder, text_length
from brimful.precision.policy import Precision, resolve
from brimful.runs.directory import find_model
from brimful.tasks.data import check_max_length, warn_of_cut
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.inference import predict as run
from brimful.tasks.model import holds_task_model, load_task_model
from brimful.tasks.output import ARRAYS, FORMATS, Output, output_file
from brimful.tasks.parts import read_parts
from brimful.tasks.table import Table, Take, read_texts


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Predict with a fine-tuned or distilled model, or turn texts into vectors with an encoder."""

    model: str
    """Folder of a task model or an encoder: a run, or a Hugging Face folder."""
    input: str
    """.txt (one text a line), or TSV, CSV or JSONL with the columns text and text_b (optional)."""
    output: str
    """.jsonl, .tsv, .csv or .parquet to write: a row for each text, in the order of the input. Or .npy:
    vectors, or a task model's scores."""
    scores: bool = False
    """Write `scores` too: the probability of each label, or the value of a regression."""
    pooling: Pooling = "mean"
    """Of an encoder: whether a vector is the mean over the tokens or the first token."""
    max_length: int | None = None
    """The most tokens of an example; by default the same as in training."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens; by default as in training."""
    precision: Precision = "fp32"
    """Number format of the computation."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""


class _Tasked:
    """A task model, which writes predictions."""

    def __init__(self, folder: Path, config: PredictConfig) -> None:
        self.config = config
        loaded = load_task_model(folder)
        self.model = replace(
            loaded,
            max_length=loaded.max_length if config.max_length is None else config.max_length,
            overlap=loaded.overlap if config.overlap is None else config.overlap,
        )
        self.array = Path(config.output).suffix == ARRAYS
        if self.array or config.scores:
            self.model.task.scores(np.zeros((0, len(self.model.task.labels)), dtype=np.float32))
        self.encoder, self.max_length = self.model.encoder, self.model.max_length
        self.facts = self.model.task.facts

    def read(self, take: Take) -> Table:
        return self.model.task.read(self.config.input, labelled=False, take=take)

    def encode(self, table: Table) -> Encoded:
        return self.model.encode(table)

    def write(self, data: Encoded, precision: Precision, output: Output) -> None:
        if self.array:
            output.vectors("scores", self.model.task.scores(self.model.answers(data, precision)))
        else:
            output.rows(self.model.rows(data, precision, scores=self.config.scores))


class _Vectors:
    """An encoder, which writes a vector for each text: of a long text in windows, the mean of theirs."""

    def __init__(self, folder: Path, config: PredictConfig) -> None:
        self.config = config
        self.encoder = load_encoder(folder, Encoder)
        if self.encoder.tokenizer is None:
            raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
        if config.scores:
            raise BrimfulError(f"{config.model} is an encoder, which gives vectors; leave --scores out")
        longest = text_length(folder, self.encoder)
        self.max_length = longest if config.max_length is None else config.max_length
        self.facts = {"width": self.encoder.config.hidden_size}

    def read(self, take: Take) -> Table:
        return read_texts(self.config.input, take)

    def encode(self, table: Table) -> Encoded:
        assert self.encoder.tokenizer is not None
        return encode(table, self.encoder.tokenizer, self.max_length, overlap=self.config.overlap)

    def write(self, data: Encoded, precision: Precision, output: Output) -> None:
        vectors = run(
            lambda batch: pool(self.encoder(batch).float(), batch, self.config.pooling),
            data.examples,
            device=self.encoder.device,
            precision=precision,
        )
        output.vectors("vector", data.mean_over_windows(vectors))


@verb(PredictConfig)
def predict(config: PredictConfig) -> dict[str, Any]:
    """Write a prediction for each text: the columns that the model's task has, such as label and probability.

    With an encoder, the column is `vector`. The input may be of any size: it is read twice, first to check
    every row, then in parts. The output gets its name when it is complete.

    Returns:
        the number of texts, real tokens per second, and the output's path.

    Raises:
        BrimfulError: the folder holds no model that can predict, the input is not a table of texts, the
            output's format is unknown or it cannot be written, or torch's build does not serve the GPU.
    """
    output = Path(config.output)
    if output.suffix not in (*FORMATS, ARRAYS):
        raise BrimfulError(f"--output {output}: the name must end in {', '.join((*FORMATS, ARRAYS))}")
    device = default_device()
    precision = resolve(config.precision, device)
    folder = find_model(Path(config.model), "model")
    model = (_Tasked if holds_task_model(folder) else _Vectors)(folder, config)
    check_max_length(model.max_length, model.encoder)
    texts, empty = 0, True
    for table in read_parts(model.read):
        if not texts:
            model.encode(table.take([0]))  # refuses windows that cannot be
        texts, empty = texts + len(table), empty and not any(table.texts)
    if empty and Path(config.input).suffix == ".txt":
        raise BrimfulError(f"{config.input} holds no text; expected one text a line")
    if config.dry_run:
        return {"dry_run": True, "texts": texts, **model.facts}
    model.encoder.to(device)
    started = time.perf_counter()
    tokens = cut = 0
    with output_file(output, texts) as file, progress("predict: texts", texts) as advance:
        for table in read_parts(model.read):
            data = model.encode(table)
            model.write(data, precision, file)
            tokens += int(data.examples.lengths.sum())
            cut += data.examples.cut
            advance(len(table))
    warn_of_cut(cut, texts, config.input, model.max_length)
    seconds = time.perf_counter() - started
    return {
        "texts": texts,
        "tokens_per_second": tokens / seconds,
        "seconds": seconds,
        "output": str(output),
    }
