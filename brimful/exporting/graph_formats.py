"""The formats onnx and openvino, and both in eight bits: the whole model as one graph, without weights beside
it."""

import contextlib
import io
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brimful.base.console import warn
from brimful.exporting.format import Format, save_folder
from brimful.exporting.runtimes import Inputs, Run, onnx_session, openvino_session, session_run

if TYPE_CHECKING:
    from brimful.exporting.exported import Export
    from brimful.exporting.gate import Gate

DESCRIPTION_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
"""Of a folder of weights, those that stay beside a graph that makes no vectors."""


class GraphFormat(Format):
    """A format of one graph: a model is traced as ONNX and checked in float32; what that becomes is compared
    on texts."""

    def write(self, folder: Path, export: "Export", gate: "Gate | None") -> float:
        from brimful.exporting.gate import check_written
        from brimful.exporting.graph import write_onnx
        from brimful.model.heads import PretrainingHead

        save_folder(folder, export, vectors=True)
        _keep_description(folder, vectors=export.reading is not None)
        if isinstance(export.head, PretrainingHead):
            warn("the graph has the scores of tokens; those of pairs are left out")
        traced = folder / "traced" / "model.onnx"
        write_onnx(
            traced, export.encoder, export.head, token_types=export.token_types, reading=export.reading
        )
        largest = check_written(export, self.name, lambda: self.open_graph(traced, exact=True))
        self.convert(traced, folder / self.file, gate)
        shutil.rmtree(traced.parent, ignore_errors=True)
        return largest

    def run(self, folder: Path, export: "Export") -> Run:
        return self.open_graph(folder / self.file, exact=False)

    def open_graph(self, path: Path, *, exact: bool) -> Run:
        """A file in the format's runtime.

        Args:
            exact: in float32; else as its users run it.
        """
        raise NotImplementedError

    def convert(self, traced: Path, out: Path, gate: "Gate | None") -> None:
        """Write an ONNX file, which is not needed afterwards, as the format's."""
        raise NotImplementedError


def _keep_description(folder: Path, *, vectors: bool) -> None:
    """Remove the weights of a model, and leave what describes it, its tokenizer, and its vectors."""
    for path in folder.iterdir():
        if path.is_dir() and not vectors:
            shutil.rmtree(path)
        elif path.name == "model.safetensors" or not (vectors or path.name in DESCRIPTION_FILES):
            path.unlink()


class Onnx(GraphFormat):
    """The graph in float32, which onnxruntime runs."""

    name = "onnx"
    library = "onnx"
    file = "onnx/model.onnx"
    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"
    takes_masked_lm = True

    def open_graph(self, path: Path, *, exact: bool) -> Run:
        return session_run(onnx_session(path))

    def convert(self, traced: Path, out: Path, gate: "Gate | None") -> None:
        # The folder comes along: the weights of a large graph are in a file beside it.
        traced.parent.rename(out.parent)


class OnnxInt8(Onnx):
    """The same with matrix products in eight bits, whose inputs are rounded when they are computed."""

    name = "onnx-int8"
    file = "onnx/model_quantized.onnx"
    rounds = True
    takes_masked_lm = False

    def convert(self, traced: Path, out: Path, gate: "Gate | None") -> None:
        quantize_onnx(traced, out)


def quantize_onnx(graph: Path, out: Path) -> None:
    """Weights of matrix products in eight bits, by channel; their inputs when they are computed, by tensor.
    Embeddings stay. Needs onnxruntime.

    Without instructions that sum four products, weights have seven bits, so that no sum saturates.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from brimful.exporting.gate import SUMS_FOUR, instruction_sets

    out.parent.mkdir(parents=True, exist_ok=True)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it recommends a preprocessing that changes nothing here
    try:
        quantize_dynamic(
            graph,
            out,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=not set(SUMS_FOUR) & set(instruction_sets()),
            weight_type=QuantType.QInt8,
            use_external_data_format=graph.with_name(f"{graph.name}.data").is_file(),
        )
    finally:
        logging.getLogger().setLevel(level)


class OpenVino(GraphFormat):
    """The graph in float32, which OpenVINO computes in bfloat16 where the processor has that."""

    name = "openvino"
    library = "openvino"
    file = "openvino/openvino_model.xml"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "openvino")
    extra = "openvino"
    rounds = True

    def open_graph(self, path: Path, *, exact: bool) -> Run:
        return session_run(openvino_session(path, exact=exact))

    def convert(self, traced: Path, out: Path, gate: "Gate | None") -> None:
        write_openvino(traced, out)


class OpenVinoInt8(OpenVino):
    """The same with weights and activations in eight bits, whose ranges real texts fix."""

    name = "openvino-int8"
    packages = (*OpenVino.packages, "nncf")

    def convert(self, traced: Path, out: Path, gate: "Gate | None") -> None:
        assert gate is not None  # the verb refuses a format that rounds without texts
        write_openvino(traced, out, gate.inputs())


def write_openvino(graph: Path, out: Path, texts: Sequence[Inputs] = ()) -> None:
    """Write an ONNX file in OpenVINO's files: the same numbers, or eight bits.

    Args:
        texts: each by itself (1, L). They fix the ranges of weights and activations in eight bits, by NNCF
            for transformers.
    """
    import openvino

    model = openvino.Core().read_model(graph)
    out.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(_quantize(model, texts) if texts else model, out, compress_to_fp16=False)


def _quantize(model: Any, texts: Sequence[Inputs]) -> Any:
    import nncf

    names = {name for port in model.inputs for name in port.get_names()}
    data = nncf.Dataset([{name: each[name] for name in sorted(names)} for each in texts])
    nncf.set_log_level(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        return nncf.quantize(
            model,
            data,
            preset=nncf.QuantizationPreset.MIXED,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
        )
