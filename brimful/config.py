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
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from brimful.errors import BrimfulError, nearest
from brimful.storage import atomic_file

C = TypeVar("C")
R = TypeVar("R")


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `1e-3` as a number (YAML 1.1 requires `1.0e-3`)."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes the text '1e-3', which `_Loader` would read as a number."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+0123456789."),
    )


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        BrimfulError: the file is absent, not YAML, or not a mapping.
    """
    try:
        value = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BrimfulError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrimfulError(f"{path} must hold a mapping of keys to values, not a {type(value).__name__}")
    return value


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


def _dataclass_of(annotation: Any) -> type | None:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if dataclasses.is_dataclass(part)]
        annotation = inner[0] if inner else None
    return annotation if dataclasses.is_dataclass(annotation) else None  # type: ignore[return-value]


def _items_of(annotation: Any) -> Any:
    """The annotation of the items, if this is a tuple of dataclasses or a union with one."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(part) is tuple and _dataclass_of(item := typing.get_args(part)[0]):
            return item
    return None


def _convert(value: Any, annotation: Any, place: str) -> Any:
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


def _build(schema: type[C], values: Mapping[str, Any], where: str, missing: Any, default: Any = None) -> C:
    """`default` is an instance that fills in what `values` leaves out: a group's default in its parent."""
    hints = typing.get_type_hints(schema)
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            raise BrimfulError(f"unknown key {where}{key!s}: {nearest(name, fields)}")
        inner = _dataclass_of(hints[name])
        if inner is not None and isinstance(value, Mapping):
            made[name] = _build(inner, value, f"{where}{name}.", missing, fields[name].default)
        elif (item := _items_of(hints[name])) is not None and isinstance(value, list | tuple):
            made[name] = tuple(
                _item(part, item, f"{where}{name}[{i}]", missing) for i, part in enumerate(value)
            )
        else:
            if isinstance(value, Mapping):
                _point_to_group(value, hints, where + name)
            made[name] = _convert(value, hints[name], where + name)
    if isinstance(default, schema):
        made = {name: getattr(default, name) for name in fields} | made
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in made:
            if missing is None:
                raise BrimfulError(f"key {where}{name} is required")
            made[name] = missing
    return schema(**made) if missing is None else _unchecked(schema, made)


def _point_to_group(values: Mapping[str, Any], hints: Mapping[str, Any], place: str) -> None:
    """Raise where a key that takes one value is given the keys of another group."""
    for group, hint in hints.items():
        inner = _dataclass_of(hint)
        if inner and values and set(values) <= {field.name for field in dataclasses.fields(inner)}:
            raise BrimfulError(f"key {place} takes one value; put {', '.join(values)} under {group}")


def _item(value: Any, annotation: Any, place: str, missing: Any) -> Any:
    inner = _dataclass_of(annotation)
    assert inner is not None
    if isinstance(value, inner):
        return value
    if isinstance(value, Mapping):
        return _build(inner, value, f"{place}.", missing)
    return _convert(value, annotation, place)


def _unchecked(schema: type[C], values: Mapping[str, Any]) -> C:
    """An instance made without `__post_init__`, whose checks would fail on missing values."""
    made = object.__new__(schema)
    for field in dataclasses.fields(schema):  # type: ignore[arg-type]
        if field.name in values:
            value = values[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = field.default
        object.__setattr__(made, field.name, value)
    return made


def build(
    schema: type[C], values: Mapping[str, Any], *, missing: Any = None, flags: Mapping[str, Any] | None = None
) -> C:
    """Make a configuration from plain values, checking every key and type.

    A schema may have a class method `defaults`: what `values` leaves out is as it says, for these values.

    Args:
        schema: a dataclass, whose fields may be dataclasses.
        values: nested mappings; a key may be written with hyphens or underscores.
        missing: stands for an absent required key. The command line fills it in and builds the configuration
            again, which runs its checks. Without `missing`, an absent required key is an error.
        flags: options that the command line will set, by key, which `defaults` sees too.

    Raises:
        BrimfulError: an unknown key (with the nearest valid one), a wrong type, an absent key.
    """
    defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = getattr(schema, "defaults", None)
    if defaults is not None:
        values = _over(defaults(flat(values) | flat(flags or {})), values)
    return _build(schema, values, "", missing)


def flat(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """{"masking": {"final-rate": 0.2}} -> {"masking.final_rate": 0.2}."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = where + str(key).replace("-", "_")
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _over(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults, with the values in place of those that they give."""
    made = dict(defaults)
    for key, value in values.items():
        name = str(key).replace("-", "_")
        under = made.pop(name, None)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        made[str(key)] = _over(under, value) if both else value
    return made


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
