"""What a process finds around it, or one line that says what is wrong: variables that launchers set, and
packages beyond the core, which pip brings on request."""

import os
from importlib.util import find_spec

from brimful.base.errors import BrimfulError


def read_number(variable: str, default: int) -> int:
    """The whole number in an environment variable, from 0.

    Raises:
        BrimfulError: it holds something else.
    """
    value = os.environ.get(variable)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise BrimfulError(
            f"the environment variable {variable} is {value[:40]!r}, not a whole number; torchrun sets it,"
            f" so without torchrun: unset {variable}"
        )
    return int(value)


def rank_and_size() -> tuple[int, int]:
    """RANK and WORLD_SIZE as torchrun sets them; 0 and 1 without it.

    Raises:
        BrimfulError: one of them is no number, they contradict each other, or several ranks have no address
            to meet at.
    """
    rank, size = read_number("RANK", 0), read_number("WORLD_SIZE", 1)
    if rank >= size:
        raise BrimfulError(
            f"the environment says RANK={rank} of WORLD_SIZE={size}: ranks are 0 to WORLD_SIZE - 1; start"
            " several processes with torchrun, or unset both"
        )
    if size > 1:
        absent = [v for v in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(v)]
        if absent:
            raise BrimfulError(
                f"the environment says WORLD_SIZE={size}, but not {', '.join(absent)}: start the processes"
                " with torchrun, or unset WORLD_SIZE for one process"
            )
        read_number("MASTER_PORT", 0)
    return rank, size


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


def describe_missing(what: str, *modules: str, extra: str | None = None) -> str | None:
    """The line that says which of these modules `what` lacks, and how to install it; None: it has them all.

    Args:
        extra: that brings them all; by default the first missing one's.
    """
    for module in modules:
        try:
            is_there = find_spec(module) is not None
        except ImportError:  # a finder of the user's own may raise it
            is_there = False
        if not is_there:
            called = _CALLED.get(module, module)
            return f"{what} needs {called}: pip install 'brimful[{extra or EXTRAS[module]}]'"
    return None


def require_packages(what: str, *modules: str, extra: str | None = None) -> None:
    """Check that modules can be imported, without importing them.

    Raises:
        BrimfulError: one of them is not installed; see `describe_missing`.
    """
    if line := describe_missing(what, *modules, extra=extra):
        raise BrimfulError(line)
