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

from brimful.base.errors import BrimfulError, nearest
from brimful.base.storage import atomic_file

C = TypeVar("C")
R = TypeVar("R")


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `1e-3` as a number (YAML 1.1 requires `1.0e-3`). It refuses aliases, keys that
    stand twice, and types and characters that no setting has."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            problem = "an alias may repeat its value without end: write the value instead"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
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
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:  # `!!float x`
            text = repr(node.value[:40]) if isinstance(node.value, str) else "this"
            raise _refused(node, f"{text} is no {kind}") from error


def _refused(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
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
        problem = (error.problem or error.context or "").replace(
            "found unhashable key", "a key must be a text"
        )
        if problem.startswith("but "):
            problem = f"{error.context}, {problem}"
        raise BrimfulError(f"{path}{where} is not valid YAML: {problem}") from error
    except RecursionError as error:
        raise BrimfulError(f"{path} is nested too deeply to hold settings") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrimfulError(f"{path} must hold a mapping of keys to values, not a {type(value).__name__}")
    return value


@contextmanager
def settings_from(path: Path | str | None, *, alone: bool = False) -> Iterator[None]:
    """Let errors about the settings of a YAML file name the file.

    Args:
        path: the file, if there is one.
        alone: only the file gives settings, so each error inside is about it. Otherwise those errors are that
            speak of one of its keys as a setting, or of a text that is one of its values.
    """
    try:
        yield
    except BrimfulError as error:
        message = str(error)
        if path is None or str(path) in message:
            raise
        keys = [key for key, value in flat(read_yaml(path)).items() if _speaks_of(message, key, value)]
        if not (keys or alone):
            raise
        where = f"{', '.join(keys)} in {path}" if keys else str(path)
        raise type(error)(f"{message} ({where})") from error


def _speaks_of(message: str, key: str, value: Any) -> bool:
    name = re.escape(key).replace("_", "[_-]")
    last = re.escape(key.rpartition(".")[2]).replace("_", "[_-]")
    mention = rf"\bkey ({name})\b|--({name})(?![\w-])|(?<![\w-])({name}|{last})( is |=|: | must )"
    if "_" in key.rpartition(".")[2]:
        mention += rf"|(?<![\w-]){last}(?![\w-])"
    if re.search(mention, message):
        return True
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return any(
        isinstance(text, str)
        and text
        and re.search(rf"(?<![\w./-]){re.escape(text)}(?![\w./-]|, line)", message)
        for text in texts
    )


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
        values: nested mappings; a key may be written with hyphens or underscores.

    Raises:
        BrimfulError: an unknown key (with the nearest valid one), a wrong type, an absent key.
    """
    return _made(schema, complete(schema, values))


def complete(schema: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, checked by `check_values`, over the defaults that the schema has for them.

    Raises:
        BrimfulError: an unknown key (with the nearest valid one), a wrong type.
    """
    checked = check_values(schema, values)
    if not hasattr(schema, "defaults"):
        return checked
    return check_values(schema, merged(schema.defaults(flat(values)), values))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one, with underscores in its keys; where both have a value, the second's."""
    made = {underscored(key): value for key, value in below.items()}
    for key, value in above.items():
        name = underscored(key)
        if isinstance(value, Mapping):
            under = made.get(name)
            value = merged(under if isinstance(under, Mapping) else {}, value)
        made[name] = value
    return made


def check_values(schema: type, values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The values in the types of a schema's fields; a group has a mapping of its own.

    Args:
        where: what comes before a key in errors: the names of groups.

    Raises:
        BrimfulError: a key is unknown (the nearest one is named), or its value has a wrong type.
    """
    hints = typing.get_type_hints(schema)
    fields = {field.name for field in dataclasses.fields(schema)}
    checked: dict[str, Any] = {}
    for key, value in values.items():
        name = underscored(key)
        place = where + name
        if name not in fields:
            raise BrimfulError(f"unknown key {where}{key!s}: {nearest(name, fields)}")
        group, item = _group_of(hints[name]), _item_of(hints[name])
        if group is not None and isinstance(value, Mapping):
            checked[name] = check_values(group, value, f"{place}.")
        elif item is not None and isinstance(value, list | tuple):
            checked[name] = tuple(_item(part, item, f"{place}[{i}]") for i, part in enumerate(value))
        else:
            if isinstance(value, Mapping):
                _point_to_group(value, hints, place)
            checked[name] = _converted(value, hints[name], place)
    return checked


def underscored(key: object) -> str:
    """A key as the name of a field: `final-rate` as `final_rate`."""
    return str(key).replace("-", "_")


def _group_of(annotation: Any) -> type | None:
    """The dataclass that an annotation is, or allows."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(annotation) is not tuple and dataclasses.is_dataclass(part):
            return typing.cast(type, part)
    return None


def _item_of(annotation: Any) -> Any:
    """The annotation of the items, if this is a tuple of dataclasses or a union with one."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(part) is tuple and _group_of(typing.get_args(part)[0]):
            return typing.get_args(part)[0]
    return None


def _item(value: Any, annotation: Any, place: str) -> Any:
    schema = _group_of(annotation)
    assert schema is not None
    if isinstance(value, schema):
        return value
    if isinstance(value, Mapping):
        return _made(schema, check_values(schema, value, f"{place}."), f"{place}.")
    return _converted(value, annotation, place)


def _converted(value: Any, annotation: Any, place: str) -> Any:
    """The value in the type of its annotation; paths may stand for strings."""
    if isinstance(value, list | tuple):
        value = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in value]
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return msgspec.convert(value, annotation, strict=True)
    except msgspec.ValidationError as error:
        message, _, inner = str(error).replace("`", "").partition(" - at $")
        raise BrimfulError(f"key {place}{inner}: {message[0].lower()}{message[1:]}") from error


def _point_to_group(values: Mapping[str, Any], hints: Mapping[str, Any], place: str) -> None:
    """Raise where a key that takes one value is given the keys of another group."""
    for group, hint in hints.items():
        inner = _group_of(hint)
        if inner and values and set(values) <= {field.name for field in dataclasses.fields(inner)}:
            raise BrimfulError(f"key {place} takes one value; put {', '.join(values)} under {group}")


def _made(schema: type[C], checked: Mapping[str, Any], where: str = "", default: Any = None) -> C:
    """An instance with values that are checked.

    Args:
        default: an instance that fills in what the values leave out: a group's default in its parent.
    """
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(schema):  # type: ignore[arg-type]
        own = getattr(default, field.name, field.default)
        value = checked.get(field.name, own)
        if isinstance(value, Mapping) and field.name in checked:
            group = _group_of(hints[field.name])
            if group is not None:
                value = _made(group, value, f"{where}{field.name}.", own)
        if value is not dataclasses.MISSING:
            values[field.name] = value
        elif field.default_factory is dataclasses.MISSING:
            raise BrimfulError(f"key {where}{field.name} is required")
    return schema(**values)


def flat(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """{"masking": {"final-rate": 0.2}} -> {"masking.final_rate": 0.2}."""
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        name = where + underscored(key)
        flattened |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
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


class Verb(Generic[C, R]):
    """A function of one configuration. Python callers may give keywords instead."""

    def __init__(
        self, schema: type[C], run: Callable[[C], R], show: Callable[[R], None] | None = None
    ) -> None:
        self.schema = schema
        self.run = run
        self.show = show
        functools.update_wrapper(self, run)

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
