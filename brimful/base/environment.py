"""The environment of a process: variables that launchers set, and packages beyond the core."""

import os
from importlib.util import find_spec

from brimful.base.errors import BrimfulError


def read_number(variable: str, default: int) -> int:
    """Read a whole number from 0 in an environment variable.

    Raises:
        BrimfulError: it holds something else.
    """
    value = os.environ.get(variable)
    if value is None:
        return default
    # isdigit alone takes "\u00b2" as well, and int takes more digits than torch does.
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise BrimfulError(
            f"the environment variable {variable} is {value[:40]!r}, not a whole number; torchrun sets it,"
            f" so without torchrun: unset {variable}"
        )
    return int(value)


def rank_and_size() -> tuple[int, int]:
    """Return RANK and WORLD_SIZE as torchrun sets them; 0 and 1 without it.

    Raises:
        BrimfulError: one of them is not a number, they contradict each other, or several ranks have no
            address to meet at.
    """
    rank, size = read_number("RANK", 0), read_number("WORLD_SIZE", 1)
    if rank >= size:
        raise BrimfulError(
            f"the environment says RANK={rank} of WORLD_SIZE={size}: ranks are 0 to WORLD_SIZE - 1; start"
            " several processes with torchrun, or unset both"
        )
    if size > 1:  # torch would wait for an address that never comes
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
    "opencc": "zh",
    "prometheus_client": "serve",
    "py3langid": "lang",
    "rensa": "near-dup",
    "sklearn": "tasks",
    "snownlp": "demo",
    "tensorboardX": "tensorboard",
    "transformers": "hf",
    "uvicorn": "serve",
}
"""The extra in pyproject.toml that brings a package, by the package's module."""
_PACKAGES = {"sklearn": "scikit-learn", "prometheus_client": "prometheus-client"}
"""The names of packages that differ from their modules'."""


def describe_missing(what: str, *modules: str, extra: str | None = None) -> str | None:
    """Say which module is missing for `what`, and how to install it; None if all are installed.

    One extra may bring them all. By default it is the one of the first missing module. The line is pip's for
    a clone, since the package is not on PyPI.
    """
    for module in modules:
        try:
            is_installed = find_spec(module) is not None
        except ImportError:  # a finder of the user's own may raise it
            is_installed = False
        if not is_installed:
            package = _PACKAGES.get(module, module)
            return f"{what} needs {package}: pip install '.[{extra or EXTRAS[module]}]' in the clone"
    return None


def require_packages(what: str, *modules: str, extra: str | None = None) -> None:
    """Check that modules can be imported, without importing them.

    Raises:
        BrimfulError: one of them is not installed; see `describe_missing`.
    """
    line = describe_missing(what, *modules, extra=extra)
    if line is not None:
        raise BrimfulError(line)
