"""The door to the engine room: the one place where a fast form (kernels/) is chosen instead of a plain one.

The model is readable and runs without kernels/. Where a faster form gives the same numbers, it registers
itself here under the name of the plain one, which asks for it. Who opens a model imports
`kernels.forms`, and who trains one `kernels.training_forms`, so that they are there. BRIMFUL_KERNELS=off in
the environment, or `shut`, shuts the door.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from brimful.base.errors import BrimfulError

SWITCH = "BRIMFUL_KERNELS"
_is_shut = os.environ.get(SWITCH) == "off"


@dataclass(frozen=True)
class FastForm:
    """A fast form.

    Attributes:
        run: takes and gives what the plain form does.
        applies: whether it computes what is given, from all of its arguments or the first ones.
    """

    run: Callable[..., Any]
    applies: Callable[..., bool] = lambda *given: True


FORMS: dict[str, tuple[FastForm, ...]] = {}
"""The fast forms by the name of the plain one. The first that applies computes."""


def register(name: str, *forms: FastForm) -> None:
    """Let these forms compute in place of the plain one of that name, the first that applies."""
    FORMS[name] = forms


def require_switch() -> None:
    """Check the environment.

    Raises:
        BrimfulError: BRIMFUL_KERNELS is neither on nor off.
    """
    if (switch := os.environ.get(SWITCH, "on")) not in ("on", "off"):
        raise BrimfulError(f"{SWITCH} is {switch!r}: it is on or off")


def is_open() -> bool:
    """Whether fast forms compute where they apply."""
    return bool(FORMS) and not _is_shut


def choose(name: str, *given: Any) -> Callable[..., Any] | None:
    """The fast form of that name that applies to what is given; None: the plain form computes."""
    if not _is_shut:
        for form in FORMS.get(name, ()):
            if form.applies(*given):
                return form.run
    return None


def within(name: str, *given: Any) -> AbstractContextManager[Any]:
    """The fast form of that name as a context for forward passes; an empty one without it."""
    fast = choose(name, *given)
    return nullcontext() if fast is None else fast(*given)


@contextmanager
def shut() -> Iterator[None]:
    """A context in which plain forms compute everything."""
    global _is_shut
    before, _is_shut = _is_shut, True
    try:
        yield
    finally:
        _is_shut = before
