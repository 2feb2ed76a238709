"""The version of cleaning: a hash of the code that decides what is read and what stays of it."""

import ast
import functools
from importlib.metadata import version
from pathlib import Path

from brimful.base.config import config_hash

_FOLDERS = ("cleaning", "reading")


@functools.cache
def cleaning_version() -> str:
    """A hash of the code of all cleaning rules and readers, and of the versions of the libraries that read
    HTML and name charsets.

    `prepare` cleans a corpus again when it changes. Comments, docstrings and layout don't count, and the
    Python version does not either.
    """
    folder = Path(__file__).parents[1]
    files = [path for name in _FOLDERS for path in sorted((folder / name).glob("*.py"))]
    files.append(folder / "text" / "characters.py")
    code = [[path.name, code_of(path.read_text(encoding="utf-8"))] for path in files]
    return config_hash([code, version("resiliparse"), version("webencodings")])


def code_of(source: str) -> str:
    """The syntax tree of a module as text, without docstrings."""
    words: list[str] = []
    _dump(ast.parse(source), words)
    return " ".join(words)


def _dump(node: object, words: list[str]) -> None:
    """Append the words of a tree: one list for all levels is faster than nested generators."""
    if isinstance(node, ast.AST):
        words.append(type(node).__name__)
        for name in node._fields:
            value = getattr(node, name, None)
            if name == "body" and isinstance(value, list):
                value = [part for part in value if not _is_docstring(part)]
            if value is not None and value != []:  # newer Pythons have more fields, which are empty here
                words.append(name)
                _dump(value, words)
    elif isinstance(node, list):
        words.append("[")
        for part in node:
            _dump(part, words)
        words.append("]")
    else:
        words.append(repr(node))


def _is_docstring(node: object) -> bool:
    """Is this statement a string alone, which has no effect?"""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
