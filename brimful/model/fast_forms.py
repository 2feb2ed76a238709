"""The one place where a fast form of a computation (kernels/) replaces the plain one (model/).

The model is readable and runs without kernels/. A plain form looks up by its own name whether a fast form
gives the same numbers. brimful/__init__.py says where the fast forms are (`load_forms_with`), so nothing here
depends on kernels/. BRIMFUL_KERNELS=off in the environment or `use_plain_forms` turns all of them off.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from brimful.base.errors import BrimfulError

SWITCH = "BRIMFUL_KERNELS"
_is_disabled = os.environ.get(SWITCH) == "off"


def _always(*inputs: Any) -> bool:
    return True


@dataclass(frozen=True)
class FastForm:
    """One fast form of a computation.

    Attributes:
        run: takes the arguments of the plain form and returns the same result.
        applies: whether `run` can compute these inputs, which are the first arguments of the plain form.
    """

    run: Callable[..., Any]
    applies: Callable[..., bool] = _always


Forms = dict[str, tuple[FastForm, ...]]
"""The fast forms of each plain form, in the order in which they are tried."""
FORMS: Forms = {}
"""All fast forms. Empty until `load_forms`."""
_load: Callable[[], Forms] = dict


def load_forms_with(load: Callable[[], Forms]) -> None:
    """Name the function that imports and returns all fast forms; it is called when they are first needed."""
    global _load
    _load = load


def load_forms() -> None:
    """Load the fast forms, once. A layer does that when it is made, before a compiler traces its lookups.

    Raises:
        BrimfulError: BRIMFUL_KERNELS is neither on nor off.
    """
    switch = os.environ.get(SWITCH, "on")
    if switch not in ("on", "off"):
        raise BrimfulError(f"{SWITCH} is {switch!r}: it is on or off")
    if not FORMS and not _is_disabled:
        FORMS.update(_load())


def has_fast_forms() -> bool:
    """Whether fast forms compute where they apply."""
    load_forms()
    return bool(FORMS) and not _is_disabled


def find_fast_form(name: str, *inputs: Any) -> Callable[..., Any] | None:
    """Return the first fast form of `name` that applies to the inputs, or None if the plain form computes."""
    if _is_disabled:
        return None
    if not FORMS:
        load_forms()
    for form in FORMS.get(name, ()):
        if form.applies(*inputs):
            return form.run
    return None


def open_fast_context(name: str, *inputs: Any) -> AbstractContextManager[Any]:
    """Return the context that the fast form of `name` makes for forward passes; without it an empty one."""
    fast = find_fast_form(name, *inputs)
    return nullcontext() if fast is None else fast(*inputs)


@contextmanager
def use_plain_forms() -> Iterator[None]:
    """Inside this context plain forms compute everything."""
    global _is_disabled
    before, _is_disabled = _is_disabled, True
    try:
        yield
    finally:
        _is_disabled = before
