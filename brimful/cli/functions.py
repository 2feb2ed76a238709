"""The verbs as functions of Python, whose keywords are the options that their configurations declare."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from brimful.base.config import build
from brimful.cli.help import option_lines
from brimful.cli.main import load_verb
from brimful.cli.options import list_options
from brimful.reports.result import VerbResult
from brimful.tables.memory import DATA_OPTIONS, data_as_files

KEEPING_VERBS = ("prepare", "finetune", "evaluate", "distil")
"""The verbs that keep data in memory in their folder, where later calls find it."""
DOC_COLUMNS = 100
"""Columns that help fills."""


@cache
def make_function(name: str) -> Callable[..., VerbResult]:
    """Return a verb as a function, with a signature and documentation for help and editors."""
    verb = load_verb(name)

    @wraps(verb.run)
    def function(**values: Any) -> VerbResult:
        with data_as_files(values, keeps=name in KEEPING_VERBS) as placed:
            return VerbResult(verb.run(build(verb.schema, placed)))

    function.__doc__ = _document(verb.schema, inspect.getdoc(verb.run) or "")
    function.__signature__ = _make_signature(verb.schema)  # type: ignore[attr-defined]
    return function


def _make_signature(schema: type) -> inspect.Signature:
    """Return the signature of a configuration's class, without what only a command line needs."""
    hints, signature, parameters = typing.get_type_hints(schema), inspect.signature(schema), []
    for name, parameter in signature.parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            parameter = parameter.replace(default={})  # the group's own defaults
        parameters.append(parameter.replace(annotation=hints[name]))
    return signature.replace(parameters=parameters, return_annotation=VerbResult)


def _document(schema: type, text: str) -> str:
    """Return the docstring of a verb with its options, before what it returns."""
    about, returns, outcome = text.partition("Returns:\n")
    # Keys are keywords here; flags have other names of some groups.
    options = [dataclasses.replace(option, flag=f"--{option.key}") for option in list_options(schema)]
    lines = [about.rstrip(), "", "Args:", *option_lines(options, DOC_COLUMNS)]
    files = [option.key for option in options if option.key in DATA_OPTIONS]
    if files:
        lines += ["", f"Also in memory, as rows, columns, a data frame, an Arrow table: {', '.join(files)}."]
    keywords = re.sub(r"--([a-z][\w.-]*)", lambda flag: flag[1].replace("-", "_"), "\n".join(lines))
    return f"{keywords}\n\n{returns}{outcome}"
