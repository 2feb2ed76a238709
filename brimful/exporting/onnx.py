"""The formats onnx and onnx-int8: the whole model in one file, which onnxruntime runs."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.exporting.exported import Export
from brimful.exporting.format import GraphFormat
from brimful.exporting.runtimes import Run, onnx_session, session_run

if TYPE_CHECKING:
    from brimful.exporting.text_gate import TextGate
    from brimful.hf.tensors import Head


class _OnnxFormat(GraphFormat):
    """What the formats of onnxruntime share."""

    library = "onnx"
    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"

    def exact_run(self, path: Path) -> Run:
        return session_run(onnx_session(path))

    def run(self, folder: Path, export: Export) -> Run:
        return session_run(onnx_session(folder / self.file))


class Onnx(_OnnxFormat):
    """The graph in float32."""

    name = "onnx"
    file = "onnx/model.onnx"

    def masked_lm_head_of(self, head: "Head | None") -> "Head":
        from brimful.model.heads import MaskedLMHead

        if not isinstance(head, MaskedLMHead):
            raise BrimfulError(
                "--masked-lm exports a masked-LM head as ONNX, and the model has none: leave it out"
            )
        return head

    def convert(self, traced: Path, out: Path, gate: "TextGate | None") -> None:
        # The folder comes along: the weights of a large graph are in a file beside it.
        traced.parent.rename(out.parent)


class OnnxInt8(_OnnxFormat):
    """The same with matrix products in eight bits, whose inputs are rounded when they are computed."""

    name = "onnx-int8"
    file = "onnx/model_quantized.onnx"
    rounds = True

    def convert(self, traced: Path, out: Path, gate: "TextGate | None") -> None:
        quantize_onnx(traced, out)


def quantize_onnx(graph: Path, out: Path) -> None:
    """Weights of matrix products in eight bits, by channel; their inputs when they are computed, by tensor.
    Embeddings stay. Needs onnxruntime.

    Without instructions that sum four products, weights have seven bits, so that no sum saturates.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from brimful.exporting.instructions import SUMS_FOUR, instruction_sets

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
