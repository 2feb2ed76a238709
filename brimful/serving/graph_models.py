"""Exports to ONNX and OpenVINO that predict: their model, computed by their runtime without torch."""

import numpy as np

from brimful.base.errors import BrimfulError, NotFiniteError, is_out_of_memory
from brimful.base.extras import require
from brimful.base.seals import check_seal
from brimful.corpus.text.tokenizer import read as read_tokenizer
from brimful.corpus.text.tokenizer import require_rows
from brimful.data.examples import Examples, check_length
from brimful.data.ragged import Ragged
from brimful.exporting.runtimes import (
    Inputs,
    onnx_session,
    openvino_session,
    padded_outputs,
    session_run,
)
from brimful.hf.config_json import class_names, shape_of
from brimful.hf.model_folder import PROBLEMS, ModelFolder
from brimful.hf.text_reading import VECTORS, reading_of
from brimful.serving.config import Opening
from brimful.serving.opened import ServedEncoder, ServedTask, graph_file
from brimful.tasks.form import Outputs
from brimful.tasks.saved import from_folder, saved_form


def open_graph(folder: ModelFolder, opening: Opening) -> ServedTask | ServedEncoder:
    """The graph of an export, in its own number format whatever the precision.

    Raises:
        BrimfulError: the runtime is not installed or cannot read the file, the folder is damaged, or the file
            gives neither a task's outputs nor vectors, or has a pooling of its own.
    """
    if graph_file(folder).suffix == ".xml":
        require(f"{folder}, a file of OpenVINO,", "openvino")
    else:
        require(f"{folder}, an ONNX file,", "onnxruntime")
    check_seal(folder.path)
    shape = shape_of(folder)
    graph = Graph(folder, shape.hidden_size, shape.vocabulary_size)
    tokenizer = read_tokenizer(folder.encoder_path)
    require_rows(tokenizer, shape.vocabulary_size, str(folder.encoder_path / "tokenizer.json"))
    reading = reading_of(folder, shape)
    max_length = reading.max_length if opening.max_length is None else opening.max_length
    check_length(max_length, shape.max_length)
    if graph.output == "last_hidden_state":
        raise BrimfulError(
            f"{graph.path} gives hidden states, as exports did until 0.2.0, and no vectors: export it again"
        )
    if graph.output == VECTORS:
        if opening.pooling is not None:
            raise BrimfulError(f"{graph.path} gives vectors that are pooled: leave --pooling out")
        return ServedEncoder(
            width=shape.hidden_size,
            max_length=max_length,
            overlap=opening.overlap,
            tokenizer=tokenizer,
            outputs=graph.vectors,
            precision=graph.precision,
            unit=reading.unit,
            prompt=reading.prompt,
        )
    suffixes = [problem for suffix, problem in PROBLEMS.items() if folder.class_name.endswith(suffix)]
    usual = suffixes[0] if suffixes else "single_label_classification"
    if graph.output != "logits" or not (suffixes or "problem_type" in folder.values):
        raise BrimfulError(
            f"{graph.path} gives {graph.output} of a {folder.class_name or 'model without a name'}, and no"
            " predictions; for vectors, export the encoder without --masked-lm"
        )
    names = class_names(folder, graph.width, str(graph.path)) or [f"LABEL_{i}" for i in range(graph.width)]
    form = saved_form(folder, usual, graph.width)
    task, saved = from_folder(form, folder, names, of_texts=not graph.by_token)
    overlap = saved.overlap if opening.overlap is None else opening.overlap
    order = [names.index(label) for label in task.labels] if usual == "token_classification" else None
    return ServedTask(
        task=task,
        max_length=max_length,
        overlap=overlap,
        tokenizer=tokenizer,
        outputs=lambda examples: graph.outputs(examples, order),
        temperature=saved.temperature,
        pairs=saved.pairs,
        precision=graph.precision,
    )


class Graph:
    """The file of a model in its runtime.

    Attributes:
        output: the name of its first output: `VECTORS`, last_hidden_state or logits, if Brimful wrote it.
        by_token: whether outputs are (B, L, C), not (B, C).
        width: C.
        precision: fp32 or int8; auto: as OpenVINO chooses.
    """

    def __init__(self, folder: ModelFolder, hidden: int, vocabulary: int) -> None:
        """
        Args:
            hidden: the width of vectors, which OpenVINO does not know before it has computed some.
            vocabulary: the ids that it has embeddings of.
        """
        self.folder = folder
        self.path = graph_file(folder)
        in_openvino = self.path.suffix == ".xml"
        try:
            session = openvino_session(self.path) if in_openvino else onnx_session(self.path, spinning=False)
        except Exception as error:  # neither has a common class of its own
            said = " ".join(str(error).split())
            runtime = "OpenVINO" if in_openvino else "onnxruntime"
            raise BrimfulError(f"{runtime} cannot read {self.path}: {said:.200}") from error
        self._computed = session_run(session)
        names = [value.name for value in session.get_inputs()]
        first = session.get_outputs()[0]
        self.output: str = first.name
        self.by_token = len(first.shape) == 3
        self.width: int = hidden if self.output == VECTORS else first.shape[-1]
        self.precision = "auto" if in_openvino else "int8" if "quantized" in self.path.name else "fp32"
        known = {"input_ids", "attention_mask", "token_type_ids"}
        if not known.issuperset(names) or not isinstance(self.width, int):
            raise BrimfulError(
                f"{self.path} is no export of Brimful: its inputs are {', '.join(names)}, and its"
                f" output has the shape {first.shape}"
            )
        last = np.full((1, 1), vocabulary - 1, dtype=np.int64)
        self._run({"input_ids": last, "attention_mask": np.ones_like(last), "token_type_ids": last * 0})
        if in_openvino and session.rows < vocabulary:  # it computes ids that it does not have
            raise self._is_of_another(f"it has {session.rows:,} embeddings at most, not {vocabulary:,}")

    def outputs(self, examples: Examples, order: list[int] | None) -> Outputs:
        """As `padded_outputs`; without examples (0, C), or no arrays (tokens, C)."""
        if not len(examples):
            width = self.width if order is None else len(order)
            empty = np.zeros((0, width), dtype=np.float32)
            return Ragged.of([], np.float32, (width,)) if self.by_token else empty
        return padded_outputs(self._run, examples, order)

    def vectors(self, examples: Examples) -> np.ndarray:
        """float32 (n, C): a vector of each example."""
        found = self.outputs(examples, None)
        assert isinstance(found, np.ndarray)
        return found

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
