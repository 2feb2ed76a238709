"""The types of `import brimful` for mypy and editors: brimful/__init__.pyi, from the verbs' configurations.

python tests/builders/stub.py    # writes it anew
"""

import dataclasses
import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import brimful
from brimful.cli.main import VERBS, load_schema
from brimful.tables.memory import DATA_OPTIONS

STUB = Path(brimful.__file__).with_suffix(".pyi")
HEAD = '''"""The types of `import brimful`. tests/builders/stub.py writes this file."""

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, TypedDict

from brimful.base.errors import BrimfulError as BrimfulError
from brimful.base.errors import BrimfulWarning as BrimfulWarning
from brimful.hf.text_encoder import TextEncoder
from brimful.reports.result import VerbResult
from brimful.tasks.task_model import TaskModel as TaskModel
'''
TYPES = """
__version__: str
__all__: list[str]
Encoder = TextEncoder
_Path = str | PathLike[str]
class _Frame(Protocol):
    @property
    def columns(self) -> Any: ...
_Data = _Path | Iterable[Any] | Mapping[str, Any] | _Frame
"""
RESULTS = {
    "prepare": {"documents": "VerbResult", "tokens": "int", "dropped": "VerbResult"},
    "pretrain": {"validation": "VerbResult", "tokens_per_second": "float", "seconds": "float"},
    "check": {"findings": "list[VerbResult]", "files": "VerbResult"},
    "finetune": {"task": "str", "test": "VerbResult", "seconds": "float"},
    "distil": {"teacher": "VerbResult", "student": "VerbResult", "test": "VerbResult", "seconds": "float"},
    "predict": {"texts": "int", "seconds": "float", "output": "str"},
    "export": {"out": "str", "bytes": "int", "format": "str"},
}
"""Types of values that results always hold; tests/cli/test_functions.py compares them with results."""


def make_stub() -> str:
    """Return the text of the file, formatted by ruff."""
    groups: dict[str, type] = {}
    parts = [write_function(verb, groups) for verb in VERBS]
    parts += [write_class(f"_{verb.capitalize()}Result(VerbResult)", keys) for verb, keys in RESULTS.items()]
    for name in (names := list(groups)):  # it grows, since a group may hold others
        parts.append(write_class(f"_{name}(TypedDict, total=False)", spell_all(groups[name], groups)))
        names += [inner for inner in groups if inner not in names]
    imports = [f"from {group.__module__} import {name}" for name, group in groups.items()]
    text = "\n".join([HEAD, *imports, TYPES, *reversed(parts)])
    for command in (["format"], ["check", "--quiet", "--select", "I", "--fix"]):
        line = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout
    return text


def write_class(head: str, keys: dict[str, str]) -> str:
    return "\n    ".join([f"class {head}:", *map(": ".join, keys.items())])


def write_function(verb: str, groups: dict[str, type]) -> str:
    function, kinds = getattr(brimful, verb.replace("-", "_")), spell_all(load_schema(verb), groups)
    keywords = ["*"] * bool(kinds)
    for name, parameter in inspect.signature(function).parameters.items():
        keywords.append(f"{name}: {kinds[name]}" + " = ..." * (parameter.default is not parameter.empty))
    result = f"_{verb.capitalize()}Result" if verb in RESULTS else "VerbResult"
    doc = (inspect.getdoc(function) or "").replace("\\", "\\\\").replace("\n", "\n    ")
    return f'def {function.__name__}({", ".join(keywords)}) -> {result}:\n    """{doc}\n    """'


def spell_all(schema: type, groups: dict[str, type]) -> dict[str, str]:
    """The type of each key of a configuration; `groups` takes the groups that they name."""
    hints = typing.get_type_hints(schema)
    names = [field.name for field in dataclasses.fields(schema)]
    return {name: spell(hints[name], groups, is_data=name in DATA_OPTIONS) for name in names}


def spell(hint: Any, groups: dict[str, type], *, is_data: bool = False) -> str:
    """The type of a keyword: wider than the field's, since `build` takes paths, lists and mappings, too."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(spell(part, groups, is_data=is_data) for part in inner))
    if hint is type(None):
        return "None"
    if is_data:
        return "_Data"
    if origin is typing.Literal:
        return str(hint).removeprefix("typing.")
    if origin is tuple:
        return "list[{0}] | tuple[{0}, ...]".format(spell(inner[0], groups))
    if dataclasses.is_dataclass(hint):
        groups[hint.__name__] = hint
        return f"{hint.__name__} | _{hint.__name__}"
    return "_Path" if hint is str else hint.__name__


if __name__ == "__main__":
    STUB.write_text(make_stub(), encoding="utf-8")
