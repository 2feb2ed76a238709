"""Configurations are strict dataclasses, read from YAML files and from keywords; unknown keys are errors.

A verb is a function of one frozen dataclass. `verb` lets Python callers pass keywords instead:
`pretrain(data="data", out="run", trainer={"steps": 10})` equals the YAML file with those keys.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.storage import atomic_file

C = TypeVar("C")
R = TypeVar("R")


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `1e-3` as a number (YAML 1.1 requires `1.0e-3`). It refuses aliases, which may
    repeat a value without end, keys that stand twice, and characters that no setting has."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _refused(self.peek_event(), "an alias: write the value instead")
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            # Python has U+DC80 to U+DCFF for the bytes of a path that are not UTF-8.
            if odd := re.search("[\0\ud800-\udc7f\udd00-\udfff]", node.value):
                raise _refused(node, f"the character U+{ord(odd[0]):04X} may not stand in a text")
        elif isinstance(node, yaml.MappingNode):
            names = Counter((key.tag, str(key.value)) for key, _ in node.value)
            for key, _ in node.value:
                if (count := names[key.tag, str(key.value)]) > 1:
                    raise _refused(key, f"the key {key.value} stands {count} times")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        kind = node.tag.rpartition(":")[2]
        if kind in ("binary", "omap", "pairs", "set"):
            raise _refused(node, f"no setting is a {kind}")
        try:
            return super().construct_object(node, deep)
        # `!!float x`, and the date 2020-13-45
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise _refused(node, f"the value is no {kind}") from error


def _refused(node: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes the text '1e-3', which `_Loader` would read as a number, and escapes line ends,
    which it would fold into spaces."""

    def ignore_aliases(self, data: Any) -> bool:
        return True  # `_Loader` refuses them

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if re.search("[\n\r\x85\u2028\u2029]", data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)

for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+0123456789."),
    )


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping: UTF-8, or UTF-16 with a byte order mark.

    Raises:
        BrimfulError: the file is absent, not YAML, or not a mapping; a key stands twice; there is an alias; a
            text holds a character that no file name can.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        value = yaml.load(text, _Loader)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BrimfulError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = f"U+{ord(text[error.position]):04X}"
        raise BrimfulError(f"{path}, line {line}: the character {code} may not stand in YAML") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        why = " ".join(filter(None, (error.context, error.problem)))
        raise BrimfulError(f"{path}{where} is not valid YAML: {why}") from error
    except RecursionError as error:
        raise BrimfulError(f"{path} is nested too deeply to hold settings") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrimfulError(f"{path} must hold a mapping of keys to values, not a {type(value).__name__}")
    return value


@contextmanager
def settings_from(path: Path | str | None, *, alone: bool = False) -> Iterator[None]:
    """Let errors about the settings of a YAML file name the file, and the keys that they speak of.

    Args:
        path: the file, if there is one.
        alone: only the file gives settings, so each error inside is about it. Otherwise those errors are that
            hold the name or a text of one of its keys.
    """
    try:
        yield
    except BrimfulError as error:
        message = str(error)
        if path is None or str(path) in message:
            raise
        keys = [key for key, value in flatten(read_yaml(path)).items() if _speaks_of(message, key, value)]
        if not (keys or alone):
            raise
        where = f"{', '.join(keys)} in {path}" if keys else str(path)
        raise type(error)(f"{message} ({where})") from error


def _speaks_of(message: str, key: str, value: Any) -> bool:
    named = re.match(r"key ([\w.]+)", message)
    if named and f"{key}.".startswith(f"{named[1]}."):
        return True
    values = value if isinstance(value, list) else [value]
    words = [key.rpartition(".")[2], *values]
    texts = [re.escape(word).replace("_", "[_-]") for word in words if isinstance(word, str) and word]
    return re.search(rf"(?<!\w)({'|'.join(texts)})(?!\w)", message) is not None


def write_yaml(path: Path | str, config: Any) -> None:
    """Write a configuration as YAML, atomically; `build(type(config), read_yaml(path))` gives it back."""
    with atomic_file(path) as temporary:
        text = yaml.dump(to_dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        temporary.write_text(text, encoding="utf-8")


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as plain JSON values."""
    return msgspec.to_builtins(config)


def config_hash(config: Any) -> str:
    """A short hash of a configuration (or any JSON value) that names what was made with it."""
    value = msgspec.to_builtins(config)
    try:
        text = msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:  # a path that is not UTF-8
        text = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def incidental(default: Any) -> Any:
    """The default of a configuration field that does not decide a run's result.

    All other fields count in `identity`, so a new field counts unless it is marked, and a run that was
    interrupted before the field existed does not resume.
    """
    return dataclasses.field(default=default, metadata={"decides": False})


def identity(config: Any) -> Any:
    """The configuration as plain JSON values, at every level without its `incidental` fields.

    It is what decides a run's bits, beside its data: a run resumes only with the same identity.
    """
    if dataclasses.is_dataclass(config):
        fields = [field for field in dataclasses.fields(config) if field.metadata.get("decides", True)]
        return {field.name: identity(getattr(config, field.name)) for field in fields}
    if isinstance(config, list | tuple):
        return [identity(item) for item in config]
    return to_dict(config)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Argument:
    """How an option stands on a command line, where its name, type and docstring do not say it.

    A configuration says it beside the type of a field: `paths: Annotated[tuple[str, ...], Argument(...)]`.

    Attributes:
        positional: it has no flag.
        group: the name of a group in flags, where the field has another.
        form: what stands for its value in help and errors.
        help: what it is, in place of the docstring below the field.
    """

    positional: bool = False
    group: str | None = None
    form: str | None = None
    help: str | None = None


def build(schema: type[C], values: Mapping[str, Any]) -> C:
    """Make a configuration from plain values, checking every key and type.

    A schema may have a class method `defaults`: what `values` leaves out is as it says, for these values.

    Args:
        schema: a dataclass, whose fields may be dataclasses.
        values: nested mappings; a key may be written with hyphens or underscores. Paths may stand for
            strings.

    Raises:
        BrimfulError: an unknown key (with the nearest valid one), a wrong type, an absent key.
    """
    try:
        return msgspec.convert(_plain(fill_defaults(schema, values)), schema)
    except msgspec.ValidationError as error:
        what, _, place = str(error).replace("`", "").partition(" - at $")
        absent = re.fullmatch("Object missing required field (.*)", what)
        if absent:
            raise BrimfulError(f"key {f'{place}.{absent[1]}'.strip('.')} is required") from error
        raise BrimfulError(f"key {place.strip('.')}: {what[0].lower()}{what[1:]}") from error


def _plain(value: Any) -> Any:
    """Groups as mappings and paths as texts; other objects stay, and msgspec names the key of a wrong one."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def fill_defaults(schema: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values over the defaults that the schema has for them, with the names of fields as keys.

    Raises:
        BrimfulError: an unknown key (with the nearest valid one).
    """
    given = _laid(schema, values)
    if not hasattr(schema, "defaults"):
        return given
    return _laid(schema, merge(schema.defaults(flatten(values)), values))


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one, with underscores in its keys; where both have a value, the second's."""
    made = {to_field_name(key): value for key, value in below.items()}
    for key, value in above.items():
        name = to_field_name(key)
        if isinstance(value, Mapping):
            under = made.get(name)
            value = merge(under if isinstance(under, Mapping) else {}, value)
        made[name] = value
    return made


def _laid(schema: type, values: Mapping[str, Any], where: str = "", default: Any = None) -> dict[str, Any]:
    """The values of a schema with the names of its fields as keys, each of them known.

    Args:
        where: what comes before a key in errors: the names of groups.
        default: what the values lie over: the default of a group in its parent.
    """
    hints = typing.get_type_hints(schema)
    fields = {field.name: field for field in dataclasses.fields(schema)}
    laid: dict[str, Any] = {}
    # msgspec leaves a default to the class, where what encodes a configuration does not look.
    for name, field in fields.items():
        if field.default is not dataclasses.MISSING:
            laid[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            laid[name] = field.default_factory()
    if isinstance(default, dict) or dataclasses.is_dataclass(default):
        laid |= msgspec.to_builtins(default)
    for key, value in values.items():
        name = to_field_name(key)
        place = where + name
        if name not in fields:
            raise BrimfulError(f"unknown key {where}{key!s}: {suggest_name(name, fields)}")
        group, is_list = _group_of(hints[name])
        if group is not None and is_list and isinstance(value, list | tuple):
            value = [
                _laid(group, part, f"{place}[{i}].") if isinstance(part, Mapping) else part
                for i, part in enumerate(value)
            ]
        elif group is not None and not is_list and isinstance(value, Mapping):
            value = _laid(group, value, f"{place}.", laid.get(name))
        laid[name] = value
    return laid


def to_field_name(key: object) -> str:
    """A key as the name of a field: `final-rate` as `final_rate`."""
    return str(key).replace("-", "_")


def _group_of(annotation: Any) -> tuple[type | None, bool]:
    """The dataclass that an annotation is or allows, and whether it stands in a tuple."""
    for part in (annotation, *typing.get_args(annotation)):
        if dataclasses.is_dataclass(part):
            return typing.cast(type, part), False
        if typing.get_origin(part) is tuple:
            group, _ = _group_of(typing.get_args(part)[0])
            if group is not None:
                return group, True
    return None, False


def flatten(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """{"masking": {"final-rate": 0.2}} -> {"masking.final_rate": 0.2}."""
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        name = where + to_field_name(key)
        flattened |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flattened


def require_positive(config: Any, *names: str, group: str = "") -> None:
    """Refuse a whole number below 1 in the fields `names`; the message puts `group` before the name.

    Raises:
        BrimfulError: the first such field and its value.
    """
    for name in names:
        if getattr(config, name) < 1:
            raise BrimfulError(f"{group}{name} is {getattr(config, name)}: it must be at least 1")


def require_seeds(*seeds: int) -> None:
    """Refuse a seed that does not fit the 64 bits of torch's and Brimful's keys.

    Raises:
        BrimfulError: the first such seed.
    """
    for seed in seeds:
        if not -(1 << 63) <= seed < 1 << 64:
            raise BrimfulError(f"seed is {seed}: it must fit 64 bits, from -2^63 to 2^64 - 1")


@dataclasses.dataclass(eq=False, repr=False)
class Verb(Generic[C, R]):
    """A function of one configuration. Python callers may give keywords instead."""

    schema: type[C]
    run: Callable[[C], R]
    show: Callable[[R], None] | None = None

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.run)

    def __call__(self, config: C | None = None, /, **values: Any) -> R:
        if config is None:
            config = build(self.schema, values)
        elif values:
            raise TypeError("give a configuration or keywords, not both")
        return self.run(config)


def verb(
    schema: type[C], show: Callable[[R], None] | None = None
) -> Callable[[Callable[[C], R]], Verb[C, R]]:
    """Mark `run(config: schema)` as a verb of the command line and of `import brimful`.

    Args:
        show: prints the result for a person; without it, the command line lists the values.
    """
    return lambda run: Verb(schema, run, show)
