"""The one place where a fast form of a computation (kernels/) replaces the plain one (model/).

The model is readable and runs without kernels/. A fast form that gives the same numbers registers itself here
under the name of the plain form, which looks it up. Code that opens a model imports `kernels.inference_forms`
for that, and code that trains one `kernels.training_forms`. BRIMFUL_KERNELS=off in the environment or
`use_plain_forms` turns all of them off.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from brimful.base.errors import BrimfulError

SWITCH = "BRIMFUL_KERNELS"
_is_disabled = os.environ.get(SWITCH) == "off"


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


def check_switch() -> None:
    """Check the environment.

    Raises:
        BrimfulError: BRIMFUL_KERNELS is neither on nor off.
    """
    if (switch := os.environ.get(SWITCH, "on")) not in ("on", "off"):
        raise BrimfulError(f"{SWITCH} is {switch!r}: it is on or off")


def has_fast_forms() -> bool:
    """Whether fast forms compute where they apply."""
    return bool(FORMS) and not _is_disabled


def find_fast_form(name: str, *given: Any) -> Callable[..., Any] | None:
    """The fast form of that name that applies to what is given; None: the plain form computes."""
    if not _is_disabled:
        for form in FORMS.get(name, ()):
            if form.applies(*given):
                return form.run
    return None


def open_fast_context(name: str, *given: Any) -> AbstractContextManager[Any]:
    """The fast form of that name as a context for forward passes; an empty one without it."""
    fast = find_fast_form(name, *given)
    return nullcontext() if fast is None else fast(*given)


@contextmanager
def use_plain_forms() -> Iterator[None]:
    """A context in which plain forms compute everything."""
    global _is_disabled
    before, _is_disabled = _is_disabled, True
    try:
        yield
    finally:
        _is_disabled = before
