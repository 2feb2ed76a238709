"""An ONNX graph in other formats: eight bits for onnxruntime, and OpenVINO's, in float and in eight bits."""

import contextlib
import io
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from brimful.exporting.formats import FormatName
from brimful.exporting.instructions import SUMS_FOUR, instruction_sets
from brimful.exporting.padded_batches import Inputs

CALIBRATED = 300
"""Texts by which OpenVINO's activations get their ranges."""


def convert(form: FormatName, graph: Path, out: Path, texts: Callable[[], Sequence[Inputs]]) -> None:
    """Write a graph in another format.

    Args:
        texts: to calibrate by, each by itself; only openvino-int8 asks for them.
    """
    if form == "onnx-int8":
        quantize_onnx(graph, out)
    elif form == "openvino":
        write_openvino(graph, out)
    else:
        quantize_openvino(graph, out, texts())


def quantize_onnx(graph: Path, out: Path) -> None:
    """Weights of matrix products in eight bits, by channel; their inputs when they are computed, by tensor.
    Embeddings stay. Needs onnxruntime.

    Without instructions that sum four products, weights have seven bits, so that no sum saturates.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

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


def write_openvino(graph: Path, out: Path) -> None:
    """The same numbers in OpenVINO's files."""
    import openvino

    _save(openvino.Core().read_model(graph), out)


def quantize_openvino(graph: Path, out: Path, texts: Sequence[Inputs]) -> None:
    """Weights and activations in eight bits by NNCF, for transformers: ranges are fixed by the texts.

    Args:
        texts: each by itself (1, L).
    """
    import nncf
    import openvino

    model = openvino.Core().read_model(graph)
    names = {name for port in model.inputs for name in port.get_names()}
    data = nncf.Dataset([{name: each[name] for name in sorted(names)} for each in texts])
    nncf.set_log_level(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        quantized = nncf.quantize(
            model,
            data,
            preset=nncf.QuantizationPreset.MIXED,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
        )
    _save(quantized, out)


def _save(model: Any, out: Path) -> None:
    import openvino

    out.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, out, compress_to_fp16=False)
