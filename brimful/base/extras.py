"""Packages beyond the core, which pip brings on request, and the line that says how."""

from importlib.util import find_spec

from brimful.base.errors import BrimfulError

EXTRAS = {
    "matplotlib": "report",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "prometheus_client": "serve",
    "sklearn": "tasks",
    "snownlp": "demo",
    "tensorboardX": "tensorboard",
    "transformers": "hf",
    "uvicorn": "serve",
}
"""The extra in pyproject.toml that brings a package, by the package's module."""
_CALLED = {"sklearn": "scikit-learn", "prometheus_client": "prometheus-client"}


def missing(what: str, *modules: str, extra: str | None = None) -> str | None:
    """The line that says which of these modules `what` lacks, and how to install it; None: it has them all.

    Args:
        extra: that brings them all; by default the first missing one's.
    """
    for module in modules:
        if find_spec(module) is None:
            called = _CALLED.get(module, module)
            return f"{what} needs {called}: pip install 'brimful[{extra or EXTRAS[module]}]'"
    return None


def require(what: str, *modules: str, extra: str | None = None) -> None:
    """Check that modules can be imported, without importing them.

    Raises:
        BrimfulError: one of them is not installed; see `missing`.
    """
    if line := missing(what, *modules, extra=extra):
        raise BrimfulError(line)
