"""A folder's model, opened by what computes it. An export to ONNX is opened here, and loads no torch."""

from pathlib import Path

import numpy as np

from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError, NotFiniteError, is_out_of_memory
from brimful.base.seals import check_seal
from brimful.corpus.text.tokenizer import read as read_tokenizer
from brimful.corpus.text.tokenizer import require_rows
from brimful.data.examples import Examples, check_length
from brimful.data.ragged import Ragged
from brimful.exporting.runtimes import Inputs, onnx_session, padded_outputs
from brimful.hf.config_json import class_names, shape_of
from brimful.hf.model_folder import PROBLEMS, ModelFolder
from brimful.hf.text_reading import VECTORS, reading_of
from brimful.serving.config import Opening
from brimful.serving.opened import ServedEncoder, ServedTask
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.registry import find_saved_form, open_form

GRAPH_FILES = ("onnx/model.onnx", "onnx/model_quantized.onnx")
"""Where an export to ONNX has its graph."""


def open_graph(folder: ModelFolder, path: Path, opening: Opening) -> ServedTask | ServedEncoder:
    """The graph of an export, in its own number format whatever the precision.

    Raises:
        BrimfulError: the runtime is not installed or cannot read the file, the folder is damaged, or the file
            gives neither a task's outputs nor vectors, or has a pooling of its own.
    """
    require_packages(f"{folder}, an ONNX file,", "onnxruntime")
    check_seal(folder.path)
    shape = shape_of(folder)
    graph = Graph(folder, path, shape.hidden_size, shape.vocabulary_size)
    tokenizer = read_tokenizer(folder.encoder_path)
    require_rows(tokenizer, shape.vocabulary_size, str(folder.encoder_path / "tokenizer.json"))
    reading = reading_of(folder, shape)
    max_length = reading.max_length if opening.max_length is None else opening.max_length
    check_length(max_length, shape.max_length)
    if graph.output == VECTORS:
        if opening.pooling is not None:
            raise BrimfulError(f"{graph.path} gives vectors that are pooled: leave --pooling out")
        return ServedEncoder(
            width=shape.hidden_size,
            max_length=max_length,
            overlap=opening.overlap,
            tokenizer=tokenizer,
            outputs=graph.outputs,
            precision=graph.precision,
            unit=reading.unit,
            prompt=reading.prompt,
        )
    suffixes = [problem for suffix, problem in PROBLEMS.items() if folder.class_name.endswith(suffix)]
    usual = suffixes[0] if suffixes else "single_label_classification"
    if graph.output != "logits" or not (suffixes or "problem_type" in folder.values):
        raise BrimfulError(
            f"{graph.path} gives {graph.output} of a {folder.class_name or 'model without a name'}, and"
            " neither predictions nor vectors: export the model again"
        )
    names = class_names(folder, graph.width, str(graph.path)) or [f"LABEL_{i}" for i in range(graph.width)]
    form = find_saved_form(folder, usual, graph.width)
    task, saved = open_form(form, folder, names, of_texts=not graph.by_token)
    overlap = saved.overlap if opening.overlap is None else opening.overlap
    if usual == "token_classification":
        graph.order = [names.index(label) for label in task.labels]
    return ServedTask(
        task=task,
        max_length=max_length,
        overlap=overlap,
        tokenizer=tokenizer,
        outputs=graph.outputs,
        temperature=saved.temperature,
        pairs=saved.pairs,
        precision=graph.precision,
    )


class Graph:
    """The file of a model in onnxruntime.

    Attributes:
        output: the name of its first output: `VECTORS` or logits, if Brimful wrote it.
        by_token: whether outputs are (B, L, C), not (B, C).
        width: C.
        order: output i is the graph's output `order[i]`; None: they are in the same order.
        precision: fp32 or int8.
    """

    def __init__(self, folder: ModelFolder, path: Path, hidden: int, vocabulary: int) -> None:
        """
        Args:
            hidden: the width of vectors.
            vocabulary: the ids that it has embeddings of.
        """
        self.folder, self.path = folder, path
        try:
            session = onnx_session(self.path, spinning=False)
        except Exception as error:  # its errors have no class of their own
            said = " ".join(str(error).split())
            raise BrimfulError(f"onnxruntime cannot read {self.path}: {said:.200}") from error
        self._computed, self.output = session.run, session.output
        self.by_token = len(session.shape) == 3
        self.width: int = hidden if self.output == VECTORS else session.shape[-1]
        self.order: list[int] | None = None
        self.precision = "int8" if "quantized" in self.path.name else "fp32"
        known = {"input_ids", "attention_mask", "token_type_ids"}
        if not known.issuperset(session.inputs) or not isinstance(self.width, int):
            raise BrimfulError(
                f"{self.path} is no export of Brimful: its inputs are {', '.join(session.inputs)}, and its"
                f" output has the shape {session.shape}"
            )
        last = np.full((1, 1), vocabulary - 1, dtype=np.int64)
        self._run({"input_ids": last, "attention_mask": np.ones_like(last), "token_type_ids": last * 0})

    def outputs(self, examples: Examples) -> Outputs:
        """As `padded_outputs`; without examples (0, C), or no arrays (tokens, C)."""
        if not len(examples):
            empty = np.zeros((0, self.width), dtype=np.float32)
            return Ragged.of([], np.float32, (self.width,)) if self.by_token else empty
        return padded_outputs(self._run, examples, self.order)

    def _run(self, inputs: Inputs) -> np.ndarray:
        try:
            values = self._computed(inputs)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise self._is_of_another(" ".join(str(error).split())) from error
        if values.shape[-1] != self.width:
            raise self._is_of_another(f"its outputs have {values.shape[-1]:,} numbers, not {self.width:,}")
        real = values[inputs["attention_mask"].astype(bool)] if values.ndim == 3 else values
        if not np.isfinite(real).all():
            raise NotFiniteError(
                f"{self.folder}: the model's outputs are NaN or infinite: its weights are damaged"
            )
        return values

    def _is_of_another(self, why: str) -> BrimfulError:
        return BrimfulError(f"{self.path} is not the graph of {self.folder}: {why:.200}; export it again")


def find_graph(folder: ModelFolder) -> Path | None:
    """The file of ONNX that holds the model of a folder; None where weights of its own do."""
    own = (*folder.path.glob("*.safetensors*"), *folder.path.glob("pytorch_model*"))
    graphs = (folder.path / name for name in GRAPH_FILES)
    return None if own else next((path for path in graphs if path.is_file()), None)


def open_served(opening: Opening) -> ServedTask | ServedEncoder:
    """The model in a folder.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, or a package that
            computes it is missing.
    """
    folder = ModelFolder.open(opening.model, "model")
    if path := find_graph(folder):
        return open_graph(folder, path, opening)
    from brimful.serving.torch_models import open_with_torch  # loads torch

    return open_with_torch(folder, opening)
