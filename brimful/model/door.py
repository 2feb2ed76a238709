"""The door to the engine room: the one place where a fast form (kernels/) is chosen instead of a plain one.

The model is readable and runs without kernels/. Where a faster form gives the same numbers, the plain form
asks for it here by name. BRIMFUL_KERNELS=off in the environment, or `shut`, keeps the door shut.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

from brimful.base.errors import BrimfulError

SWITCH = "BRIMFUL_KERNELS"
_is_shut = os.environ.get(SWITCH) == "off"
_kernels: Any = None


def kernels() -> Any:
    """The module `kernels.forms`; None where the door is shut.

    Modules that choose in a forward pass call it when they are made: a compiled step cannot import.

    Raises:
        BrimfulError: BRIMFUL_KERNELS is neither on nor off.
    """
    global _kernels
    if _kernels is None and not _is_shut:
        if (switch := os.environ.get(SWITCH, "on")) != "on":
            raise BrimfulError(f"{SWITCH} is {switch!r}: it is on or off")
        _kernels = import_module("brimful.kernels.forms")
    return None if _is_shut else _kernels


def choose(name: str, *given: Any) -> Callable[..., Any] | None:
    """The fast form of that name that applies to what is given; None: the plain form computes."""
    forms = kernels()
    if forms is not None:
        for form in forms.FORMS[name]:
            if form.applies(*given):
                return form.run
    return None


def within(name: str, *given: Any) -> AbstractContextManager[Any]:
    """The fast form of that name as a context for forward passes; an empty one without it."""
    fast = choose(name, *given)
    return nullcontext() if fast is None else fast()


@contextmanager
def shut() -> Iterator[None]:
    """A context in which plain forms compute everything."""
    global _is_shut
    before, _is_shut = _is_shut, True
    try:
        yield
    finally:
        _is_shut = before
