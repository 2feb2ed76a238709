"""Compiling loops."""

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import numba
except ImportError:
    numba = None

HAVE_NUMBA = numba is not None


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a loop on its first call; the machine code is kept on disk where there is a place to write it.
    Other threads run meanwhile.

    numba looks beside the source file, in $NUMBA_CACHE_DIR and in the user's cache folder. It compiles again
    when that file changes, but not when another does: what other modules of ours define, a loop gets as
    arguments. Without numba the loop stays Python: slow, but right.
    """
    return _compile(function, nogil=True)


def compiled_briefly(function: Callable[..., Any]) -> Any:
    """As `compiled`, for calls of microseconds: other threads wait; getting a turn back would cost more."""
    return _compile(function, nogil=False)


def _compile(function: Callable[..., Any], *, nogil: bool) -> Any:
    if not HAVE_NUMBA:
        return np.errstate(over="ignore")(function)  # machine words wrap round
    try:
        return numba.njit(cache=True, nogil=nogil)(function)
    except RuntimeError:
        return numba.njit(nogil=nogil)(function)
