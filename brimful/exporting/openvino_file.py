"""A file of OpenVINO on the CPU, without torch, with the methods of an onnxruntime session."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


class OpenVinoSession:
    """A compiled model.

    Args:
        model: of OpenVINO.
        rows: of its longest matrix of weights, which has the embeddings of the vocabulary.
    """

    def __init__(self, model: Any, rows: int) -> None:
        self._model, self._own = model, threading.local()  # a request serves one thread at a time
        self.rows = rows

    def get_inputs(self) -> list[Any]:
        """The `name` of each input."""
        return [SimpleNamespace(name=port.get_any_name()) for port in self._model.inputs]

    def get_outputs(self) -> list[Any]:
        """The `name` and the `shape` of each output; None for a size that the inputs decide."""
        return [
            SimpleNamespace(
                name=port.get_any_name(),
                shape=[size.get_length() if size.is_static else None for size in port.partial_shape],
            )
            for port in self._model.outputs
        ]

    def run(self, names: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """All outputs, float32."""
        if not hasattr(self._own, "request"):
            self._own.request = self._model.create_infer_request()
        found = self._own.request.infer(inputs)
        return [np.array(found[index], dtype=np.float32) for index in range(len(self._model.outputs))]


def openvino_session(path: Path, *, exact: bool = False) -> OpenVinoSession:
    """The file in OpenVINO, which chooses its threads.

    Args:
        exact: in float32; else as OpenVINO chooses, in bfloat16 where the processor has that.
    """
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32"} if exact else {}
    model = core.read_model(path)
    shapes = [op.get_output_shape(0) for op in model.get_ops() if op.get_type_name() == "Constant"]
    rows = max((shape[0] for shape in shapes if len(shape) > 1), default=0)
    return OpenVinoSession(core.compile_model(model, "CPU", settings), rows)
