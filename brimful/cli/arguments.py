"""A command line -> a configuration: its texts become a nested mapping of values, laid over the file that
`--config` names, and `build` makes the configuration of it, as it does for Python callers."""

import contextlib
import difflib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from brimful.base.config import build, fill_defaults, flatten, merge, read_yaml
from brimful.base.errors import UsageError
from brimful.cli.help import help_of
from brimful.cli.options import HELP_FLAGS, Common, Option, options_of
from brimful.cli.settings_errors import settings_from


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
    options = options_of(schema)
    help_flags = [argument for argument in arguments if argument in HELP_FLAGS]
    with _naming_help(prog):
        pairs = _values([each for each in arguments if each not in HELP_FLAGS], options)
    common = Common(**{option.path[0]: value for option, value in pairs if option.schema is Common})
    flags = _nested([(option.path, value) for option, value in pairs if option.schema is not Common])
    file_values: dict[str, Any] = {}
    if common.config is not None:
        file_values = read_yaml(common.config)
        with settings_from(common.config, alone=True):
            fill_defaults(schema, file_values)
    values = merge(file_values, flags)
    if help_flags:
        print(help_of(schema, prog, fill_defaults(schema, values), every="--help-all" in help_flags), end="")
        raise SystemExit(0)
    with _naming_help(prog):
        _require(options, flatten(values), prog.split()[-1])
    with settings_from(common.config, alone=not flags):
        return build(schema, values), common


@contextlib.contextmanager
def _naming_help(prog: str) -> Iterator[None]:
    """Let an error about the arguments end with the command that explains them."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{error} ({prog} --help)") from error


def _values(arguments: Sequence[str], options: Sequence[Option]) -> list[tuple[Option, Any]]:
    """The options that the arguments name, with their values; of an option with one value a later one counts.

    Raises:
        UsageError: an option is unknown, or has a missing or wrong value; one with several values is
            repeated, which would drop some; an argument belongs to none.
    """
    flags = {flag: option for option in [*options, *options_of(Common)] for flag in option.flags}
    values: list[tuple[Option, Any]] = []
    positional: list[str] = []
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        if not argument.startswith("--"):
            positional.append(argument)
            continue
        name, equals, text = argument.partition("=")
        flag = _in_full(name.replace("_", "-"), flags, options)
        option = flags[flag]
        if flag == option.off_flag:
            if equals:
                raise UsageError(f"{name} takes no value")
            values.append((option, False))
            continue
        texts = [text] if equals else []
        while remaining and option.takes(remaining[0], texts):
            texts.append(remaining.popleft())
        if option.several and any(option is other for other, _ in values):
            raise UsageError(f"{flag} is given twice: write all its values behind one {flag}")
        values.append((option, option.value(texts)))
    place = next((option for option in options if option.positional), None)
    most = len(positional) if place and place.several else int(place is not None)
    if len(positional) > most:
        raise UsageError(f"unexpected argument {positional[most]}")
    if place and positional:
        values.append((place, place.value(positional)))
    return values


def _in_full(flag: str, flags: Collection[str], options: Sequence[Option]) -> str:
    """`--encoding` as `--read.encoding`, where one group alone has that option.

    Raises:
        UsageError: there is no such flag. The option that is probably meant is named.
    """
    if flag in flags:
        return flag
    homes = [each for each in flags if _without_group(each) == flag[2:]]
    if len(homes) == 1:
        return homes[0]
    near = [each for each in flags if _switches_off(each) <= _switches_off(flag)]
    names = {option.path[-1]: option.flag for option in options if option.positional}
    names |= {_without_group(each): each for each in near} | {each[2:]: each for each in near}
    same, asked = _without_group(flag), flag[2:].lower()
    matches = [same] if same in names else difflib.get_close_matches(asked, names, n=1, cutoff=0.6)
    hint = f": did you mean {names[matches[0]]}?" if matches else ""
    raise UsageError(f"unknown option {flag}{hint}")


def _without_group(flag: str) -> str:
    return flag[2:].rpartition(".")[2]


def _switches_off(flag: str) -> bool:
    return _without_group(flag).startswith("no-")


def _nested(values: Sequence[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    """{("masking", "rate"): 0.2} -> {"masking": {"rate": 0.2}}."""
    nested: dict[str, Any] = {}
    for path, value in values:
        group = nested
        for name in path[:-1]:
            group = group.setdefault(name, {})
        group[path[-1]] = value
    return nested


def _require(options: Sequence[Option], values: Mapping[str, Any], verb: str) -> None:
    """
    Raises:
        UsageError: required options have no value.
    """
    absent = [option.flag for option in options if option.required and option.key not in values]
    if absent:
        raise UsageError(f"{verb} needs {' and '.join(absent)}")
