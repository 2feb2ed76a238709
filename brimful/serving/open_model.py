"""Open the model in a folder with the library that computes it. An export to ONNX loads no torch."""

from pathlib import Path

import numpy as np

from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError, NotFiniteError, is_out_of_memory
from brimful.base.seals import check_seal
from brimful.base.types import Values
from brimful.corpus.text.tokenizer import read as read_tokenizer
from brimful.corpus.text.tokenizer import require_rows
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.exporting.padded_batches import GraphSession, Inputs, padded_outputs
from brimful.hf.config_json import class_names, shape_of
from brimful.hf.model_folder import PROBLEMS, ModelFolder
from brimful.hf.text_reading import VECTORS, reading_of
from brimful.serving.config import ModelOptions
from brimful.serving.served_model import ServedEncoder, ServedTask, choose_max_length
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.registry import find_saved_form, open_form

GRAPH_FILES = ("onnx/model.onnx", "onnx/model_quantized.onnx")
"""Places of the graph in an export to ONNX."""
INPUT_NAMES = {"input_ids", "attention_mask", "token_type_ids"}


def open_served(options: ModelOptions) -> ServedTask | ServedEncoder:
    """Open the model in a folder.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, or a package that
            computes it is missing.
    """
    folder = ModelFolder.open(options.model, "model")
    graph_file = find_graph(folder)
    if graph_file is not None:
        return open_graph(folder, graph_file, options)
    from brimful.serving.torch_models import open_with_torch  # loads torch

    return open_with_torch(folder, options)


def find_graph(folder: ModelFolder) -> Path | None:
    """Return the ONNX file that holds the model of a folder; None where other weights hold it."""
    # An export with a graph has no weights beside it; elsewhere people put graphs beside their weights.
    if any(folder.path.glob("*.safetensors*")) or any(folder.path.glob("pytorch_model*")):
        return None
    for name in GRAPH_FILES:
        if (folder.path / name).is_file():
            return folder.path / name
    return None


def open_graph(folder: ModelFolder, path: Path, options: ModelOptions) -> ServedTask | ServedEncoder:
    """Open the graph of an export, in its own number format whatever the precision."""
    require_packages(f"{folder}, an ONNX file,", "onnxruntime")
    check_seal(folder.path)
    shape = shape_of(folder)
    graph = Graph(folder, path, shape.hidden_size, shape.vocabulary_size)
    tokenizer = read_tokenizer(folder.encoder_path)
    require_rows(tokenizer, shape.vocabulary_size, str(folder.encoder_path / "tokenizer.json"))
    reading = reading_of(folder, shape)
    common: Values = {"tokenizer": tokenizer, "outputs": graph.outputs, "precision": graph.precision}
    common["max_length"] = choose_max_length(options, reading.max_length, shape.max_length)
    if graph.output == VECTORS:
        if options.pooling is not None:
            raise BrimfulError(f"{graph.path} gives vectors that are pooled: leave --pooling out")
        return ServedEncoder(
            width=shape.hidden_size,
            overlap=options.overlap,
            unit=reading.unit,
            prompt=reading.prompt,
            **common,
        )
    problem_type = next((PROBLEMS[suffix] for suffix in PROBLEMS if folder.class_name.endswith(suffix)), None)
    if graph.output != "logits" or not (problem_type or "problem_type" in folder.values):
        raise BrimfulError(
            f"{graph.path} gives {graph.output} of a {folder.class_name or 'model without a name'}, and"
            " neither predictions nor vectors: export the model again"
        )
    # Without a class that transformers has, the graph is a classifier of the mean.
    problem_type = problem_type or "single_label_classification"
    names = class_names(folder, graph.width, str(graph.path)) or [f"LABEL_{i}" for i in range(graph.width)]
    form = find_saved_form(folder, problem_type, graph.width)
    task, saved = open_form(form, folder, names, of_texts=not graph.by_token)
    if problem_type == "token_classification":
        # The task sorts tags its own way: output i is the graph's output order[i].
        graph.order = [names.index(label) for label in task.labels]
    return ServedTask(
        task=task,
        overlap=saved.overlap if options.overlap is None else options.overlap,
        temperature=saved.temperature,
        pairs=saved.pairs,
        **common,
    )


class Graph(GraphSession):
    """The graph of a model, whose first output is `VECTORS` or logits, if Brimful wrote it.

    Attributes:
        by_token: whether outputs are (B, L, C), not (B, C).
        width: C.
        order: output i is the graph's output `order[i]`; None where both orders are the same.
        precision: fp32 or int8.
    """

    def __init__(self, folder: ModelFolder, path: Path, width: int, vocabulary_size: int) -> None:
        """`width` is the length of a vector, `vocabulary_size` the number of ids with embeddings."""
        self.folder, self.path = folder, path
        try:
            super().__init__(path, spinning=False)
        except Exception as error:  # onnxruntime's errors share no class
            reason = " ".join(str(error).split())
            raise BrimfulError(f"onnxruntime cannot read {path}: {reason:.200}") from error
        self.by_token = len(self.shape) == 3
        self.width: int = width if self.output == VECTORS else self.shape[-1]
        self.order: list[int] | None = None
        self.precision = "int8" if "quantized" in path.name else "fp32"
        if not INPUT_NAMES.issuperset(self.inputs) or not isinstance(self.width, int):
            raise BrimfulError(
                f"{path} is not an export of Brimful: its inputs are {', '.join(self.inputs)}, and"
                f" its output has the shape {self.shape}"
            )
        # The last id fails now, not in the middle of a file, if the graph has fewer embeddings.
        last_id = np.full((1, 1), vocabulary_size - 1, dtype=np.int64)
        ones, zeros = np.ones_like(last_id), np.zeros_like(last_id)
        self._run({"input_ids": last_id, "attention_mask": ones, "token_type_ids": zeros})

    def outputs(self, examples: Examples) -> Outputs:
        """Return the outputs as `padded_outputs` does; of no examples (0, C), or no arrays (tokens, C)."""
        if len(examples):
            return padded_outputs(self._run, examples, self.order)
        if self.by_token:
            return Ragged.of([], np.float32, (self.width,))
        return np.zeros((0, self.width), dtype=np.float32)

    def _run(self, inputs: Inputs) -> np.ndarray:
        try:
            values = self.run(inputs)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise self._mismatch(" ".join(str(error).split())) from error
        if values.shape[-1] != self.width:
            raise self._mismatch(f"its outputs have {values.shape[-1]:,} numbers, not {self.width:,}")
        # The outputs of padding in (B, L, C) may be anything.
        real = values[inputs["attention_mask"].astype(bool)] if values.ndim == 3 else values
        if not np.isfinite(real).all():
            raise NotFiniteError(
                f"{self.folder}: the model's outputs are NaN or infinite: its weights are damaged"
            )
        return values

    def _mismatch(self, why: str) -> BrimfulError:
        return BrimfulError(f"{self.path} is not the graph of {self.folder}: {why:.200}; export it again")
