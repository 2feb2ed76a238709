"""A command line -> a configuration. tyro parses; what is wrong with the arguments becomes one line."""

import contextlib
import dataclasses
import difflib
import errno
import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import tyro

from brimful.base.config import build, flat, read_yaml, settings_from, to_dict
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.retired import instead_of
from brimful.cli.help import help_of
from brimful.cli.options import Common, options_of
from brimful.cli.other_names import meant_by

HELP = ("--help", "-h", "--help-all")
LONGEST_NAME = 255
"""Bytes of a file's name, on common file systems."""


def parse(schema: type, arguments: Sequence[str], prog: str) -> tuple[Any, Common]:
    """The configuration that the arguments give, over the file that `--config` names; and the common options.

    Args:
        schema: the configuration of the verb.
        arguments: what follows the verb.
        prog: `brimful VERB`.

    Raises:
        UsageError: an option is unknown, is missing, or has a missing or wrong value.
        BrimfulError: the file cannot be read, or a setting is refused by the configuration.
        SystemExit: help was printed.
    """
    nested = tyro.conf.arg(name="")
    both = dataclasses.make_dataclass(
        "Arguments",
        [("options", Annotated[schema, nested]), ("common", Annotated[Common, nested])],
        frozen=True,
    )
    line = _CommandLine(schema, arguments, prog)
    line.check_names()
    helped = [flag for flag in HELP if flag in arguments]
    default: Any = None
    values: dict[str, Any] = {}
    file: str | None = None
    if "--config" in line.given:
        if not line.given["--config"]:
            raise line.error("--config needs a value: a file")
        file = line.given["--config"][-1]
        values = read_yaml(file)
    if values or helped or hasattr(schema, "defaults"):
        last = {flag[2:]: given[-1] for flag, given in line.given.items() if flag and given}
        flags = {flag: None if value == "None" else value for flag, value in last.items()}
        with settings_from(file, alone=True):
            default = both(build(schema, values, missing=tyro.MISSING, flags=flags), Common())
    if helped:
        print(help_of(schema, prog, default.options, every="--help-all" in helped), end="")
        raise SystemExit(0)
    printed = io.StringIO()
    alone = not set(line.given) - {"", "--config", "--json", "--debug", "--dry-run"}
    try:
        with contextlib.redirect_stderr(printed), settings_from(file, alone=alone):
            parsed, unknown = tyro.cli(
                both,
                prog=prog,
                args=line.arguments,
                default=default,
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise line.explain(default and default.options, printed.getvalue()) from None
    if unknown:
        raise line.error(f"unexpected argument {unknown[0]}")
    return parsed.options, parsed.common


@contextlib.contextmanager
def naming_options(options: Any, file: str | None) -> Iterator[None]:
    """Let an error name what is at fault among the options: the setting of a file, as `settings_from` does,
    and the option of a path that is too long for the system."""
    with settings_from(file):
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                _refuse_long(to_dict(options))
            raise


def _refuse_long(options: dict[str, Any]) -> None:
    for name, value in flat(options).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and len(os.fsencode(text)) > LONGEST_NAME:
                raise BrimfulError(
                    f"{name} is a path of {len(text):,} characters, {text[:40]!r} ...: shorten it"
                )


def _last(flag: str) -> str:
    """The name of an option without its group."""
    return flag[2:].rpartition(".")[2]


class _CommandLine:
    """The arguments of a verb, and what can be said about them without tyro."""

    def __init__(self, schema: type, arguments: Sequence[str], prog: str) -> None:
        self.prog = prog
        self.options = options_of(schema) | options_of(Common)
        self.arguments = [self._in_full(argument) for argument in arguments]
        self.given = self._values()

    def error(self, message: str) -> UsageError:
        return UsageError(f"{message} ({self.prog} --help)")

    def _in_full(self, argument: str) -> str:
        """`--encoding` as `--read.encoding`, where one group alone has that option; a switch that can have a
        value is turned off by the value False."""
        name, equals, value = argument.partition("=")
        flag = name.replace("_", "-")
        switch = self.options.get(flag.replace("--no-", "--", 1))
        if flag.startswith("--no-") and flag not in self.options and switch and bool in switch.types:
            return f"{flag.replace('--no-', '--', 1)}=False" if not equals else argument
        if not argument.startswith("--") or flag in self.options:
            return argument
        groups = [full for full in self.options if full.rpartition(".")[2] == flag[2:] and "." in full]
        return groups[0] + equals + value if len(groups) == 1 else argument

    def _values(self) -> dict[str, list[str]]:
        """The values of each flag that is given; positional ones under ""."""
        given: dict[str, list[str]] = {"": []}
        flag, room = "", float("inf")
        for argument in self.arguments:
            if argument.startswith("--"):
                flag, equals, value = argument.partition("=")
                flag = flag.replace("_", "-")
                given[flag] = [value] if equals else []
                option = self.options.get(flag)
                room = float("inf") if option and option.several else 1
                is_switch = option and bool in option.types and not option.several
                room = 0 if is_switch else room - bool(equals)
            else:
                given[flag if room > 0 else ""].append(argument)
                room -= 1
        return given

    def check_names(self) -> None:
        """Refuse a flag that the verb does not have."""
        for flag in self.given:
            if flag and flag not in {*self.options, *HELP} and not flag.startswith("--tyro-"):
                groups = {name[2:].rpartition(".")[0] for name in self.options}
                if remedy := instead_of(flag[2:], groups=groups):
                    raise self.error(f"--{remedy}")
                raise self.error(f"unknown option {flag}{self._hint(flag)}")

    def _hint(self, flag: str) -> str:
        """The option that is meant: of another tool, of another group, or nearly of the same name."""
        nearest = meant_by(flag, self.options)
        if nearest is None:
            name = _last(flag)
            flags = [each for each in self.options if each.startswith("--")]
            flags = [each for each in flags if name.startswith("no-") or not _last(each).startswith("no-")]
            names = {_last(each): each for each in flags} | {each[2:]: each for each in flags}
            matches = [name] if name in names else difflib.get_close_matches(flag[2:], names, n=1, cutoff=0.6)
            nearest = names[matches[0]] if matches else None
        return f": did you mean {nearest}?" if nearest else ""

    def explain(self, default: Any, printed: str) -> UsageError:
        """Why tyro refused the arguments; in its own words if nothing else is known.

        Args:
            default: the configuration of the `--config` file, with `tyro.MISSING` for what it leaves out.
            printed: what tyro wrote: a box, ruled into sections.
        """
        for flag, values in self.given.items():
            if flag in self.options and (problem := self.options[flag].problem(values)):
                remedy = instead_of(flag[2:], " ".join(values))
                return self.error(f"--{remedy}" if remedy else f"{flag} {problem}")
        missing = [
            flag
            for flag, option in self.options.items()
            if option.required
            and not option.several  # it may have no values
            and (default is None or getattr(default, flag.lower().strip("-"), None) is tyro.MISSING)
            and not self.given.get("" if option.positional else flag)
        ]
        if missing:
            return self.error(f"{self.prog.split()[-1]} needs {' and '.join(missing)}")
        section = re.split(r"│ ─+ │", printed)[0]
        return self.error(" ".join(re.sub(r"╭.*╮|[│╰╯─]", " ", section).split()))
