"""torch.compile with a fallback: a function that a machine cannot compile runs eagerly."""

import os
import shutil
import textwrap
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch._functorch import config as functorch_config

from brimful.base.console import warn
from brimful.base.errors import is_out_of_memory


class Compiled:
    """A function that torch compiles on its first call. If this fails, it warns and runs eagerly.

    Compiling fails for example without a C++ compiler, with an operator that is not supported, or after too
    many recompilations. Every error of the first call that is not one of memory counts as such a failure, if
    the function runs eagerly; later, only an error of Dynamo or Inductor does. The function must not have
    side effects before it fails. Its backward pass is compiled with it.

    Args:
        what: the name of the function in the warning.
        options: the options of torch.compile.

    Attributes:
        failure: the reason why the function runs eagerly; None if it does not.
    """

    def __init__(self, function: Callable[..., Any], what: str, **options: Any) -> None:
        self.function = function
        self.what = what
        self.options = options
        self.failure: str | None = None
        self._graph: Callable[..., Any] | None = None
        self._has_run = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result; raise what the function itself raises, or that memory ran out."""
        if self.failure is not None:
            return self.function(*args, **kwargs)
        if self._graph is None:  # not before: torch.compile imports Dynamo, which takes a second
            set_up_compiler()
            self._graph = torch.compile(self.function, **self.options)
        try:
            result = self._graph(*args, **kwargs)
        except Exception as error:
            # torch says of a backend's error only "backend='inductor' raised:".
            inner = getattr(error, "inner_exception", None) or error
            if is_out_of_memory(inner):
                raise inner from None
            if self._has_run and not _is_of_compiler(error):
                raise
            result = self.function(*args, **kwargs)  # an error of its own is raised here
            self.failure = _reason_of(inner)
            warn_once(f"{self.what} is not compiled: {self.failure}")
        self._has_run = True
        return result


def _reason_of(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return textwrap.shorten(": ".join([type(error).__name__, *lines[:1]]), 200, placeholder=" ...")


def set_up_compiler() -> None:
    """Set the options of torch that every compiled function here needs. Call it before other code compiles
    graphs with Brimful's operators.

    The settings stay, since to patch them would cost each call tens of microseconds.
    """
    # A backward pass that cannot be compiled fails in the first call too, and not when it runs.
    functorch_config.force_non_lazy_backward_lowering = True
    # torch would make the first call of a graph under a dispatch mode, to check its custom operators. What
    # they have compiled would not fit the second call, which a CUDA graph captures; compiling then fails.
    functorch_config.check_custom_op_aliasing = False


@cache
def warn_once(line: str) -> None:
    """Warn on the main rank, once in this process."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_rank()):
        warn(line)


def _is_of_compiler(error: BaseException) -> bool:
    """Whether Dynamo, AOTAutograd, Inductor or Triton raised it, or caused it."""
    chain: BaseException | None = error
    while chain is not None:
        if any(kind.__module__.startswith(_COMPILERS) for kind in type(chain).__mro__):
            return True
        chain = chain.__cause__
    return False


_COMPILERS = ("torch._dynamo.", "torch._inductor.", "torch._functorch.", "triton.")


def find_missing_compiler(device: torch.device) -> str | None:
    """Return in words what this machine lacks to compile for a device; None if it lacks nothing."""
    variable, usual = ("CC", "gcc") if device.type == "cuda" else ("CXX", "g++")
    compiler = os.environ.get(variable) or usual
    if shutil.which(compiler.split()[0]) is None:
        return f"a compiler, and {compiler} was not found ({variable} can name another one)"
    if device.type == "cuda" and find_spec("triton") is None:
        return "Triton"
    return None
