"""A command line -> a configuration. tyro parses; what is wrong with the arguments becomes one line."""

import contextlib
import dataclasses
import difflib
import errno
import io
import os
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import tyro

from brimful.config import build, flat, read_yaml, settings_from, to_dict
from brimful.errors import BrimfulError, UsageError
from brimful.retired import instead_of

LONGEST_NAME = 255
"""Bytes of a file's name, on common file systems."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every verb."""

    config: str | None = None
    """YAML file with this verb's options; flags override it."""
    json: bool = False
    """Print the result as JSON, on one line of stdout."""
    debug: bool = False
    """Show the traceback of an error."""


def parse(schema: type, arguments: Sequence[str], prog: str, description: str | None) -> tuple[Any, Common]:
    """The configuration that the arguments give, over the file that `--config` names; and the common options.

    Raises:
        UsageError: an option is unknown, is missing, or has a missing or wrong value.
        BrimfulError: the file cannot be read, or a setting is refused by the configuration.
        SystemExit: `--help` was printed.
    """
    nested = tyro.conf.arg(name="")
    both = dataclasses.make_dataclass(
        "Arguments",
        [("options", Annotated[schema, nested]), ("common", Annotated[Common, nested])],
        frozen=True,
    )
    line = _CommandLine(schema, arguments, prog)
    line.check_names()
    default: Any = None
    values: dict[str, Any] = {}
    file: str | None = None
    if "--config" in line.given:
        if not line.given["--config"]:
            raise line.error("--config needs a value: a file")
        file = line.given["--config"][-1]
        values = read_yaml(file)
    if values or hasattr(schema, "defaults"):
        last = {flag[2:]: given[-1] for flag, given in line.given.items() if flag and given}
        flags = {flag: None if value == "None" else value for flag, value in last.items()}
        with settings_from(file, alone=True):
            default = both(build(schema, values, missing=tyro.MISSING, flags=flags), Common())
    said = io.StringIO()
    alone = not set(line.given) - {"", "--config", "--json", "--debug", "--dry-run"}
    try:
        with contextlib.redirect_stderr(said), settings_from(file, alone=alone):
            parsed, unknown = tyro.cli(
                both,
                prog=prog,
                description=description,
                args=line.arguments,
                default=default,
                config=(tyro.conf.FlagCreatePairsOff,),
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise line.explain(default and default.options, said.getvalue()) from None
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


@dataclasses.dataclass(frozen=True)
class _Option:
    """One option of a verb: its annotation and what comes with it."""

    annotation: Any
    metadata: tuple[Any, ...]
    required: bool

    @property
    def positional(self) -> bool:
        return tyro.conf.Positional in self.metadata

    @property
    def constructor(self) -> Any:
        """What parses the values, where it is not tyro itself."""
        specs = (m for m in self.metadata if isinstance(m, tyro.constructors.PrimitiveConstructorSpec))
        return next(specs, None)

    @property
    def types(self) -> tuple[Any, ...]:
        """The types a value may have: `int | None` is int, `tuple[int, ...]` is int."""
        return _types(self.annotation)

    @property
    def several(self) -> bool:
        """Whether it takes any number of values."""
        parts = (self.annotation, *typing.get_args(self.annotation))
        return self.constructor is not None or any(typing.get_origin(part) is tuple for part in parts)

    def problem(self, values: Sequence[str]) -> str | None:
        """What is wrong with the values, if anything is."""
        if self.constructor is not None:
            try:
                self.constructor.instance_from_str(list(values))
            except ValueError:
                return f"takes {self.constructor.metavar}, not {' '.join(values)}"
            return None
        if not values and not self.several and bool not in self.types:
            return f"needs a value: {_expected(self.types)}"
        wrong = [value for value in values if not any(_fits(value, kind) for kind in self.types)]
        return f"takes {_expected(self.types)}, not {wrong[0]!r}" if wrong else None


def _types(annotation: Any) -> tuple[Any, ...]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return _types(inner[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(kind for part in inner if part is not type(None) for kind in _types(part))
    return (annotation,)


def _fits(value: str, kind: Any) -> bool:
    if typing.get_origin(kind) is typing.Literal:
        return value in map(str, typing.get_args(kind))
    try:
        kind(value)
    except (TypeError, ValueError):
        return False
    return True


def _expected(kinds: Sequence[Any]) -> str:
    words = {int: ["a whole number"], float: ["a number"], str: ["text"]}
    named = [
        word
        for kind in kinds
        for word in words.get(kind) or map(str, typing.get_args(kind) or [getattr(kind, "__name__", kind)])
    ]
    return " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _options(schema: type, prefix: str = "") -> dict[str, _Option]:
    """The options by flag, with the options of groups; a positional option by its name in capitals."""
    hints = typing.get_type_hints(schema, include_extras=True)
    found: dict[str, _Option] = {}
    for field in dataclasses.fields(schema):
        annotation, *metadata = (hints[field.name],)
        if typing.get_origin(annotation) is Annotated:
            annotation, *metadata = typing.get_args(annotation)
        name = prefix + field.name.replace("_", "-")
        if tyro.conf.Suppress in metadata:
            continue
        if dataclasses.is_dataclass(annotation):
            renamed = [m.name for m in metadata if getattr(m, "name", None)]
            found |= _options(
                typing.cast(type, annotation), f"{prefix}{renamed[0]}." if renamed else f"{name}."
            )
            continue
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        option = _Option(annotation, tuple(metadata), required)
        found[name.upper() if option.positional else f"--{name}"] = option
        found |= {alias: option for m in metadata for alias in getattr(m, "aliases", None) or ()}
        if annotation is bool:
            group, _, last = name.rpartition(".")
            found[f"--{group}{'.' * bool(group)}no-{last}"] = option
    return found


class _CommandLine:
    """The arguments of a verb, and what can be said about them without tyro."""

    def __init__(self, schema: type, arguments: Sequence[str], prog: str) -> None:
        self.prog = prog
        self.options = _options(schema) | _options(Common)
        self.arguments = [self._in_full(argument) for argument in arguments]
        self.given = self._values()

    def error(self, message: str) -> UsageError:
        return UsageError(f"{message} ({self.prog} --help)")

    def _in_full(self, argument: str) -> str:
        """`--encoding` as `--read.encoding`, where one group alone has that option."""
        name, equals, value = argument.partition("=")
        flag = name.replace("_", "-")
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
            if flag and flag not in self.options and flag != "--help" and not flag.startswith("--tyro-"):
                groups = {name[2:].rpartition(".")[0] for name in self.options}
                if remedy := instead_of(flag[2:], groups=groups):
                    raise self.error(f"--{remedy}")
                raise self.error(f"unknown option {flag}{self._hint(flag)}")

    def _hint(self, flag: str) -> str:
        names = {name: name for name in self.options if name.startswith("--")}
        names |= {f"--{name.rpartition('.')[2]}": name for name in names if "." in name}
        matches = difflib.get_close_matches(flag, names, n=1, cutoff=0.6)
        return f": did you mean {names[matches[0]]}?" if matches else ""

    def explain(self, default: Any, said: str) -> UsageError:
        """Why tyro refused the arguments; in its own words if nothing else is known.

        Args:
            default: the configuration of the `--config` file, with `tyro.MISSING` for what it leaves out.
            said: what tyro wrote: a box, ruled into sections.
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
        section = re.split(r"│ ─+ │", said)[0]
        return self.error(" ".join(re.sub(r"╭.*╮|[│╰╯─]", " ", section).split()))
