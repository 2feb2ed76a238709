"""Write the help of a verb: on one screen the options that most runs set, and on request all of them.

A configuration names its main options in `MAIN` ("trainer.steps"), and in `EXAMPLE` the rest of a command
line that works. Without `MAIN`, required options are main ones, then others of no group.
"""

import dataclasses
import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Sequence

from brimful.base.config import flatten
from brimful.base.console import pluralise
from brimful.base.types import Facts
from brimful.cli.options import Common, Option, list_options, read_docstrings

MAX_MAIN_OPTIONS = 12
"""The length of the list for a verb whose configuration has no `MAIN`."""
MIN_COLUMNS, MAX_COLUMNS = 60, 120
"""Columns that help fills."""
FLAG_COLUMNS = 30
"""Columns of a flag, beside which its explanation stands."""
UNBROKEN_SPACE = "\N{NO-BREAK SPACE}"
"""A space at which no line is broken."""


def write_help(schema: type, prog: str, values: Facts, *, every: bool) -> str:
    """Return the help of a verb, as wide as the terminal, within limits.

    Args:
        schema: the configuration of the verb.
        prog: `brimful VERB`.
        values: the values that are given, in groups; other options have their defaults.
        every: whether to show all options, by group, instead of the main ones.
    """
    width = max(MIN_COLUMNS, min(shutil.get_terminal_size().columns, MAX_COLUMNS))
    flat_values = flatten(values)
    options = []
    for option in list_options(schema):
        default = flat_values.get(option.key, option.default)
        options.append(dataclasses.replace(option, default=default))
    places = [option.flag + " ..." * option.several for option in options if option.positional]
    lines = [f"usage: {' '.join([prog, *places])} [OPTIONS]", ""]
    lines += [*textwrap.wrap(_first_sentence(inspect.getdoc(schema) or ""), width), ""]
    if every:
        lines += _all_lines(schema, options, width)
    else:
        lines += _main_lines(schema, options, prog, width)
    return "\n".join(lines) + "\n"


def choose_main_options(schema: type, options: Sequence[Option]) -> list[Option]:
    """Return the options that most runs set, in the order of `MAIN`."""
    names: tuple[str, ...] | None = getattr(schema, "MAIN", None)
    if names is not None:
        by_key = {option.key: option for option in options}
        return [by_key[name] for name in names]
    outside_groups = [option for option in options if len(option.path) == 1]
    return sorted(outside_groups, key=lambda option: not option.required)[:MAX_MAIN_OPTIONS]


def _main_lines(schema: type, options: Sequence[Option], prog: str, width: int) -> list[str]:
    """Return the main options, a command line that works, and the command that shows the others."""
    main = choose_main_options(schema, options)
    lines = option_lines(main, width, brief=True)
    if lines:
        lines.append("")
    example = getattr(schema, "EXAMPLE", None)
    if example is None:
        example = " ".join(_flag_with_form(option) for option in options if option.required)
    # The backslashes let a shell take the lines as one.
    lines += " \\\n".join(_wrap(f"example: {prog} {example}", width - 2, indent="  ")).split("\n")
    count = "the options in full"
    if len(options) > len(main):
        count = pluralise(len(options) - len(main), "more option")
    command = f"{prog} --help-all".replace(" ", UNBROKEN_SPACE)
    return lines + _wrap(f"{count}, and --config FILE.yaml, --json, --debug: {command}", width)


def _wrap(text: str, width: int, *, indent: str = "") -> list[str]:
    wrapped = textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped.replace(UNBROKEN_SPACE, " ").split("\n")


def _all_lines(schema: type, options: Sequence[Option], width: int) -> list[str]:
    by_group: dict[tuple[str, ...], list[Option]] = {(): []}
    for option in options:
        by_group.setdefault(option.path[:-1], []).append(option)
    lines: list[str] = []
    for group, own_options in by_group.items():
        if not own_options:
            continue
        if group:
            lines += textwrap.wrap(_heading(schema, group), width)
        lines += [*option_lines(own_options, width), ""]
    return [*lines, "Any verb", *option_lines(list_options(Common), width)]


def _heading(schema: type, group: tuple[str, ...]) -> str:
    """Return the first paragraph of a group's docstring, and the docstring of its field."""
    parent = schema
    for name in group[:-1]:
        parent = typing.get_type_hints(parent)[name]
    own = typing.get_type_hints(parent)[group[-1]]
    about = (inspect.getdoc(own) or "").partition("\n\n")[0]
    return " ".join(f"{about} {read_docstrings(parent).get(group[-1], '')}".split())


def option_lines(options: Sequence[Option], width: int, *, brief: bool = False) -> list[str]:
    """Return flags, and beside them their explanations; with `brief` only the first sentence."""
    lines: list[str] = []
    for option in options:
        flag, text = f"  {_flag_with_form(option)}", option.explanation()
        if brief:
            text = _first_sentence(text)
        text = f"{text} {_default(option)}"
        body = textwrap.wrap(text, width - FLAG_COLUMNS, break_on_hyphens=False) or [""]
        if len(flag) > FLAG_COLUMNS - 2:
            lines += textwrap.wrap(flag.strip(), width, initial_indent="  ", subsequent_indent="      ")
        else:
            lines.append(f"{flag:<{FLAG_COLUMNS}}{body.pop(0)}".rstrip())
        lines += [" " * FLAG_COLUMNS + line for line in body]
    return lines


def _flag_with_form(option: Option) -> str:
    """Return the flag that one gives, and the form of its value: INT, a|b, STR ..."""
    if option.positional:
        return option.flag
    if option.annotation is bool:
        return option.off_flag if option.default is True else option.flag
    form = option.argument.form or "|".join(option.words) + " ..." * option.several
    return f"{option.flag} {form}"


def _default(option: Option) -> str:
    value = option.default
    if option.required:
        return "(required)"
    if value is True and option.annotation is bool:
        return "(default: on; this switches it off)"
    if value is None or value is False or value in ((), ""):
        return ""
    words = []
    for each in value if isinstance(value, tuple) else [value]:
        words.append(f"{each:g}" if isinstance(each, float) else str(each))
    return f"(default: {' '.join(words)})"


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[^.]\.)\s+(?=[A-Za-z\"`-])|\n\n", text.strip(), maxsplit=1)[0].replace("\n", " ")
