"""An ONNX file in onnxruntime, on the CPU and without torch."""

from pathlib import Path
from typing import Any


def onnx_session(path: Path, *, spinning: bool = True) -> Any:
    """An onnxruntime session on the CPU, which chooses the number of its threads.

    Args:
        spinning: whether threads that wait for work keep their cores busy, which makes single texts faster.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
