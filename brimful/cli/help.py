"""The help of a verb: on one screen the options that most runs set, and on request all of them.

A configuration names its main options in `MAIN` ("trainer.steps"), and in `EXAMPLE` what follows the verb in
a command line that works. Without `MAIN`, required options are main ones, then others of no group.
"""

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import tyro

from brimful.base.console import counted
from brimful.cli.options import Common, Option, options_of

MOST = 12
"""Main options of a verb."""
NARROWEST, WIDEST = 60, 120
"""Columns that help fills."""
_INDENT = 30
"""Columns of a flag, beside which its explanation stands."""

QUESTIONS = {
    "What goes in": (
        *("paths", "files", "runs", "run", "directory", "data", "input", "texts", "text", "histogram"),
        *("encoder", "encoders", "teacher", "teacher_scores", "start_from", "tokenizer", "resume"),
        *("train", "dev", "test", "more_tests", "calibrate", "unlabelled", "task", "layout", "lexicon"),
        *("more_fields", "candidates", "vectors", "stop_words", "max_documents", "max_reviews"),
        "keep_pieces_of",
    ),
    "What comes out": ("out", "output", "format", "plot", "scores", "step"),
    "How it is done": (),
    "The machine": (
        *("engine", "workers", "precision", "micro_batch_tokens", "rows_per_micro_batch", "verify_data"),
        "document_seconds",
    ),
    "Trying it": ("dry_run",),
}
"""The headings over the options of no group, and which stand there; others under "How it is done"."""


def help_of(schema: type, prog: str, default: Any, *, every: bool) -> str:
    """The help of a verb, as wide as the terminal, within limits.

    Args:
        schema: the configuration of the verb.
        prog: `brimful VERB`.
        default: an instance of it, with `tyro.MISSING` for what is required.
        every: all options, by question; else the main ones.
    """
    width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    options = _shown(options_of(schema))
    places = [flag + " ..." * option.several for flag, option in options.items() if option.positional]
    lines = [f"usage: {' '.join([prog, *places])} [OPTIONS]", ""]
    lines += [*textwrap.wrap(_sentence(inspect.getdoc(schema) or ""), width), ""]
    if every:
        for heading, chosen in _by_question(schema, options):
            title, _, more = heading.partition("\n")
            lines += textwrap.wrap(title, width)
            lines += textwrap.wrap(more, width, initial_indent="  ", subsequent_indent="  ")
            lines += [*_lines(chosen, default, width), ""]
        common = _shown(options_of(Common))
        lines += ["Any verb", *_lines(common, Common(), width)]
    else:
        main = main_options(schema)
        lines += _lines(main, default, width, brief=True)
        lines += ["", *_example_lines(f"example: {example_of(schema, prog)}", width)]
        others = len(options) - len(main)
        rest = counted(others, "more option") if others else "the options in full"
        command = f"{prog} --help-all".replace(" ", "\N{NO-BREAK SPACE}")
        text = f"{rest}, and --config FILE.yaml, --json, --debug: {command}"
        last = textwrap.wrap(text, width, break_on_hyphens=False)
        lines += [line.replace("\N{NO-BREAK SPACE}", " ") for line in last]
    return "\n".join(lines) + "\n"


def main_options(schema: type) -> dict[str, Option]:
    """The options that most runs set, by flag, in the order of `MAIN`."""
    options = _shown(options_of(schema))
    names: tuple[str, ...] | None = getattr(schema, "MAIN", None)
    if names is not None:
        flags = {".".join(option.path): flag for flag, option in options.items()}
        return {flags[name]: options[flags[name]] for name in names}
    alone = [flag for flag, option in options.items() if len(option.path) == 1]
    chosen = sorted(alone, key=lambda flag: not options[flag].required)[:MOST]
    return {flag: options[flag] for flag in chosen}


def example_of(schema: type, prog: str) -> str:
    """A command line that works: the `EXAMPLE` of the configuration, or what it requires."""
    if example := getattr(schema, "EXAMPLE", None):
        return f"{prog} {example}"
    required = {flag: option for flag, option in _shown(options_of(schema)).items() if option.required}
    parts = [flag if option.positional else f"{flag} {_value(option)}" for flag, option in required.items()]
    return " ".join([prog, *parts])


def _shown(options: Mapping[str, Option]) -> dict[str, Option]:
    """Each option once: without aliases, and without the second flag of a switch."""
    found: dict[tuple[str, ...], str] = {}
    for flag, option in options.items():
        found.setdefault(option.path, flag)
    return {flag: options[flag] for flag in found.values()}


def _example_lines(example: str, width: int) -> list[str]:
    """As the shell takes it on several lines; an option and its value stay on one."""
    pairs = re.sub(r"(--\S+) (?!-)", "\\1\N{NO-BREAK SPACE}", example)
    lines = textwrap.wrap(pairs, width - 2, subsequent_indent="  ", break_on_hyphens=False)
    return " \\\n".join(lines).replace("\N{NO-BREAK SPACE}", " ").split("\n")


def _by_question(schema: type, options: Mapping[str, Option]) -> Iterator[tuple[str, dict[str, Option]]]:
    alone: dict[str, dict[str, Option]] = {question: {} for question in QUESTIONS}
    grouped: dict[tuple[str, ...], dict[str, Option]] = {}
    for flag, option in options.items():
        group, name = option.path[:-1], option.path[-1]
        if group:
            grouped.setdefault(group, {})[flag] = option
            continue
        named = [question for question, names in QUESTIONS.items() if name in names]
        question = named[0] if named else "What goes in" if option.required else "How it is done"
        alone[question][flag] = option
    last = {question: alone.pop(question) for question in ("The machine", "Trying it")}
    yield from ((question, chosen) for question, chosen in alone.items() if chosen)
    for group, chosen in grouped.items():
        yield _heading(schema, group), chosen
    yield from ((question, chosen) for question, chosen in last.items() if chosen)


def _heading(schema: type, group: tuple[str, ...]) -> str:
    """What a group is about, and on a second line what else there is to say about it."""
    text = (inspect.getdoc(_schema_at(schema, group)) or "").partition("\n\n")[0].replace("\n", " ")
    title = _sentence(text)
    rest = text.removeprefix(title).strip()
    title, colon, more = title.partition(": ")
    more = f"{more[:1].upper()}{more[1:]}" if colon else ""
    own = documented(_schema_at(schema, group[:-1])).get(group[-1], "")
    return f"{title.rstrip('.')}\n{' '.join(filter(None, (more, rest, own)))}"


def _schema_at(schema: type, path: tuple[str, ...]) -> type:
    for name in path:
        schema = typing.get_type_hints(schema)[name]
    return schema


def _at(config: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        config = getattr(config, name)
    return config


def _lines(options: Mapping[str, Option], default: Any, width: int, *, brief: bool = False) -> list[str]:
    lines = []
    for flag, option in options.items():
        value = _at(default, option.path)
        if option.annotation is bool and value is True:
            group, _, name = flag[2:].rpartition(".")
            flag = f"--{group}{'.' * bool(group)}no-{name}"
        head = f"  {flag} {_value(option)}".rstrip()
        text = _explanation(option)
        text = " ".join(filter(None, (_sentence(text) if brief else text, _default(option, value))))
        body = textwrap.wrap(text, width - _INDENT, break_on_hyphens=False) or [""]
        if len(head) > _INDENT - 2:
            lines += textwrap.wrap(head.strip(), width, initial_indent="  ", subsequent_indent="      ")
        else:
            lines.append(f"{head:<{_INDENT}}{body.pop(0)}".rstrip())
        lines += [" " * _INDENT + line for line in body]
    return lines


def _value(option: Option) -> str:
    """What stands for the value of an option: INT, a|b, STR ..."""
    if option.positional or option.annotation is bool:
        return ""
    if option.constructor is not None:
        return str(option.constructor.metavar)
    words = [
        str(word)
        for kind in option.types
        for word in ((True, False) if kind is bool else typing.get_args(kind) or (kind.__name__.upper(),))
    ]
    return "|".join(dict.fromkeys(words)) + (" ..." if option.several else "")


def _default(option: Option, value: Any) -> str:
    if value is tyro.MISSING:
        return "(required)"
    if value is True and option.annotation is bool:
        return "(default: on; this switches it off)"
    if value is None or value is False or value in ((), ""):
        return ""
    if option.constructor is not None:
        return f"(default: {' '.join(option.constructor.str_from_instance(value))})"
    values = value if isinstance(value, tuple) else (value,)
    words = [f"{each:g}" if isinstance(each, float) else str(each) for each in values]
    return f"(default: {' '.join(words)})"


def _explanation(option: Option) -> str:
    """What an option is, on one line."""
    text = next(filter(None, (getattr(each, "help", None) for each in option.metadata)), None)
    return " ".join((text or documented(option.schema).get(option.path[-1], "")).split())


def _sentence(text: str) -> str:
    """The first sentence."""
    return re.split(r"(?<=[^.]\.)\s+(?=[A-Za-z\"`-])|\n\n", text.strip(), maxsplit=1)[0].replace("\n", " ")


@cache
def documented(schema: type) -> dict[str, str]:
    """What stands below the fields of a configuration and of its bases."""
    found: dict[str, str] = {}
    for each in filter(dataclasses.is_dataclass, reversed(schema.__mro__)):
        (tree,) = typing.cast(list[ast.ClassDef], ast.parse(textwrap.dedent(inspect.getsource(each))).body)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = text
    return found
