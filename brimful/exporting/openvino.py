"""The formats openvino and openvino-int8: the whole model in OpenVINO's files."""

import contextlib
import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brimful.exporting.exported import Export
from brimful.exporting.format import GraphFormat
from brimful.exporting.runtimes import Inputs, Run, openvino_session, session_run

if TYPE_CHECKING:
    from brimful.exporting.text_gate import TextGate


class OpenVino(GraphFormat):
    """The graph in float32, which OpenVINO computes in bfloat16 where the processor has that."""

    name = "openvino"
    library = "openvino"
    file = "openvino/openvino_model.xml"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "openvino")
    extra = "openvino"
    rounds = True

    def exact_run(self, path: Path) -> Run:
        return session_run(openvino_session(path, exact=True))

    def run(self, folder: Path, export: Export) -> Run:
        return session_run(openvino_session(folder / self.file))

    def convert(self, traced: Path, out: Path, gate: "TextGate | None") -> None:
        write_openvino(traced, out)


class OpenVinoInt8(OpenVino):
    """The same with weights and activations in eight bits, whose ranges real texts fix."""

    name = "openvino-int8"
    packages = (*OpenVino.packages, "nncf")

    def convert(self, traced: Path, out: Path, gate: "TextGate | None") -> None:
        assert gate is not None  # `open_gate` refuses a format that rounds without texts
        quantize_openvino(traced, out, gate.inputs())


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
