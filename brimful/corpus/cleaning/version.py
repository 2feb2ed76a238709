"""The version of cleaning: a hash of the code that reads and cleans."""

import ast
import functools
import re
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
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [statement for statement in body if not _is_docstring(statement)]  # type: ignore[attr-defined]
    # Newer Pythons have more fields, which are empty here, and do not show them.
    return re.sub(r"\w+=\[\]|, ", "", ast.dump(tree))


def _is_docstring(node: ast.AST) -> bool:
    """Is this statement a string alone, which has no effect?"""
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
