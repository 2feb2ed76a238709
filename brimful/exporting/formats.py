"""The formats of exports: where each has its model, and what writes it."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.extras import require

FormatName = Literal["hf", "sentence-transformers", "onnx", "onnx-int8", "openvino", "openvino-int8", "int8"]


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        file: the model, in the export's folder, under the name by which others load it.
        packages: modules that write and check it, beyond the core.
        extra: of pyproject.toml, which brings them.
        graph: whether it is one graph, which `PaddedModel` is traced to, and not weights.
        int8: whether its numbers have eight bits.
        rounds: whether its runtime may compute in fewer bits than float32, so that texts must show what it
            costs.
    """

    file: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    graph: bool = True
    int8: bool = False
    rounds: bool = False


_ONNX = ("onnx", "onnxscript", "onnxruntime")
_OPENVINO = ("onnx", "onnxscript", "openvino")
_OPENVINO_FILE = "openvino/openvino_model.xml"
FORMATS: dict[FormatName, Format] = {
    "hf": Format("model.safetensors", graph=False),
    "sentence-transformers": Format("model.safetensors", graph=False),
    "int8": Format("model.safetensors", graph=False, int8=True, rounds=True),
    "onnx": Format("onnx/model.onnx", _ONNX, "onnx"),
    "onnx-int8": Format("onnx/model_quantized.onnx", _ONNX, "onnx", int8=True, rounds=True),
    "openvino": Format(_OPENVINO_FILE, _OPENVINO, "openvino", rounds=True),
    "openvino-int8": Format(_OPENVINO_FILE, (*_OPENVINO, "nncf"), "openvino", int8=True, rounds=True),
}


def require_packages(name: FormatName) -> None:
    """Check that what a format needs can be imported.

    Raises:
        BrimfulError: it is not installed.
    """
    form = FORMATS[name]
    if form.packages:
        require(f"--format {name}", *form.packages, extra=form.extra)
