"""Packages whose public names are imported when they are first used (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: its `__name__`.
        homes: name -> the module inside the package that defines it; module:name where it is called
            otherwise there.
    """

    def get(name: str) -> Any:
        if name in homes:
            module, _, own = homes[name].partition(":")
            return getattr(importlib.import_module(f"{package}.{module}"), own or name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(homes), list(homes)
