"""Turn a command line into a configuration.

The texts of the command line become a nested mapping of values, which is laid over the file that `--config`
names. `build` makes the configuration of the result, as it does for Python callers.
"""

import difflib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from brimful.base.config import build, fill_defaults, flatten, merge, read_yaml
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.types import Values
from brimful.cli.help import write_help
from brimful.cli.options import HELP_FLAGS, Common, Option, list_options


def parse(schema: type, arguments: Sequence[str], prog: str) -> tuple[Any, Common, set[str]]:
    """Return the configuration that the arguments give, the options that all verbs have, and the keys of the
    configuration that come from the `--config` file.

    Args:
        schema: the configuration of the verb.
        arguments: the words behind the verb.
        prog: `brimful VERB`.

    Raises:
        UsageError: an option is unknown, is missing, or has a missing or wrong value.
        BrimfulError: the file cannot be read, or the configuration refuses a setting.
        SystemExit: help was printed.
    """
    options = list_options(schema)
    words = [argument for argument in arguments if argument not in HELP_FLAGS]
    common_values: Values = {}
    flag_values: Values = {}
    help_hint = f"({prog} --help)"
    try:
        pairs = _read_values(words, options)
    except UsageError as error:
        raise UsageError(f"{error} {help_hint}") from error
    for option, value in pairs:
        if option.schema is Common:
            common_values[option.path[0]] = value
        else:
            _set_value(flag_values, option.path, value)
    common = Common(**common_values)
    file_values: Values = {}
    if common.config is not None:
        file_values = read_yaml(common.config)
    values = merge(file_values, flag_values)
    file_keys = flatten(file_values).keys() - flatten(flag_values)
    try:
        filled = fill_defaults(schema, values)  # an unknown key is refused before one is missed
        if len(words) < len(arguments):
            print(write_help(schema, prog, filled, every="--help-all" in arguments), end="")
            raise SystemExit(0)
        present = flatten(values)
        absent = [option.flag for option in options if option.required and option.key not in present]
        if absent:
            raise UsageError(f"{prog.split()[-1]} needs {' and '.join(absent)} {help_hint}")
        return build(schema, values), common, file_keys
    except BrimfulError as error:
        # A message names a key in full, or without its group: `trainer.steps`, `--steps`.
        named = set(re.findall(r"[^\W_]\w*(?:\.\w+)*", str(error).replace("-", "_")))
        keys = {key for key in file_keys if {key, key.rpartition(".")[2]} & named}
        name_settings(error, common.config, keys)
        raise


def name_settings(error: BrimfulError, file: str | None, keys: set[str]) -> None:
    """Add the keys of the `--config` file that an error is about, if any, and the file to its message."""
    if keys:
        error.args = (f"{error} ({', '.join(sorted(keys))} in {file})",)


def _read_values(arguments: Sequence[str], options: Sequence[Option]) -> list[tuple[Option, Any]]:
    """Return the options that the arguments name, in their order, with their values."""
    flags = {flag: option for option in [*options, *list_options(Common)] for flag in option.flags}
    values: list[tuple[Option, Any]] = []
    positional: list[str] = []
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        if not argument.startswith("--"):
            positional.append(argument)
            continue
        name, equals, text = argument.partition("=")
        flag = _resolve_flag(name.replace("_", "-"), flags, options)
        option = flags[flag]
        if flag == option.off_flag:
            if equals:
                raise UsageError(f"{name} takes no value")
            values.append((option, False))
            continue
        texts = [text] if equals else []
        while remaining and option.takes(remaining[0], texts):
            texts.append(remaining.popleft())
        # Values given a second time would replace the first ones.
        if option.several and any(option is earlier for earlier, _ in values):
            raise UsageError(f"{flag} is given twice: write all its values behind one {flag}")
        values.append((option, option.value(texts)))
    places = [option for option in options if option.positional]
    if positional and not places:
        raise UsageError(f"unexpected argument {positional[0]}")
    if len(positional) > 1 and not places[0].several:
        raise UsageError(f"unexpected argument {positional[1]}")
    if positional:
        values.append((places[0], places[0].value(positional)))
    return values


def _resolve_flag(flag: str, flags: Mapping[str, Option], options: Sequence[Option]) -> str:
    """Return the flag in full: `--encoding` is `--read.encoding` if no other option has that name."""
    if flag in flags:
        return flag
    matches = [full for full in flags if _without_group(full) == flag[2:]]
    if len(matches) == 1:
        return matches[0]
    # The flag of each name that may be meant. A full name counts more than an equal one without its group.
    suggestions = {option.path[-1]: option.flag for option in options if option.positional}
    suggestions |= {_without_group(full): full for full in flags}
    suggestions |= {full[2:]: full for full in flags}
    close = [_without_group(flag)]
    if close[0] not in suggestions:
        close = difflib.get_close_matches(flag[2:].lower(), suggestions, n=1)
    if close:
        raise UsageError(f"unknown option {flag}: did you mean {suggestions[close[0]]}?")
    raise UsageError(f"unknown option {flag}")


def _without_group(flag: str) -> str:
    return flag[2:].rpartition(".")[2]


def _set_value(values: Values, path: tuple[str, ...], value: Any) -> None:
    """Set `values["masking"]["rate"]` for the path ("masking", "rate")."""
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value
