"""The package that cuts runs of Han characters into words: rjieba, or jieba where that is not installed."""

import importlib.metadata
from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

from brimful.base.errors import BrimfulError

Language = Literal["auto", "zh", "en"]
"""Where Chinese words are cut: wherever there are Han characters (auto, zh), or not at all (en)."""


def cutter_name() -> str:
    """The package that finds Chinese words here; it is not imported.

    Raises:
        BrimfulError: neither is installed.
    """
    for name in ("rjieba", "jieba"):
        if find_spec(name) is not None:
            return name
    raise BrimfulError("neither rjieba nor jieba is installed to find Chinese words; pip install rjieba")


def cutter_version() -> str:
    """The package with its version: `rjieba 0.2.2`."""
    name = cutter_name()
    return f"{name} {importlib.metadata.version(name)}"


def load_cutter() -> Callable[[str], list[str]]:
    """The package's function text -> words."""
    if cutter_name() == "rjieba":
        from rjieba import cut

        return cut
    import jieba

    jieba.setLogLevel("ERROR")
    return jieba.lcut
