"""Strict dataclasses as the configuration schema: YAML files and dotted overrides, and nothing unknown.

A verb is a function of one frozen dataclass. `verb` lets Python callers pass keywords instead:
`pretrain(data="data", out="run", trainer={"steps": 10})` equals the YAML file with those keys.
"""

import dataclasses
import functools
import hashlib
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
    """SafeLoader that reads `1e-3` as the number it is (YAML 1.1 wants `1.0e-3`)."""


_Loader.add_implicit_resolver(
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
        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        temporary.write_text(text, encoding="utf-8")


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as plain JSON values."""
    return msgspec.to_builtins(config)


def config_hash(config: Any) -> str:
    """A short hash of a configuration (or any JSON value) that names what was made with it."""
    text = msgspec.json.encode(msgspec.to_builtins(config), order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]


def _dataclass_of(annotation: Any) -> type | None:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if dataclasses.is_dataclass(part)]
        annotation = inner[0] if inner else None
    return annotation if dataclasses.is_dataclass(annotation) else None  # type: ignore[return-value]


def _complete(schema: type, values: Mapping[str, Any], where: str, missing: Any) -> dict[str, Any]:
    """Refuse unknown keys by name; mark absent required ones with `missing`."""
    hints = typing.get_type_hints(schema, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(schema)}
    complete: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            raise BrimfulError(f"unknown key {where}{key!s}: {nearest(name, fields)}")
        inner = _dataclass_of(hints[name])
        if inner is not None and isinstance(value, Mapping):
            value = _complete(inner, value, f"{where}{name}.", missing)
        complete[name] = value
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in complete:
            if missing is None:
                raise BrimfulError(f"key {where}{name} is required")
            complete[name] = missing
    return complete


def build(schema: type[C], values: Mapping[str, Any], *, missing: Any = None) -> C:
    """Make a configuration from plain values, checking every key and type.

    Args:
        schema: a dataclass, whose fields may be dataclasses.
        values: nested mappings; a key may be written with hyphens or underscores.
        missing: what stands for an absent required key (a command line fills it in later); without
            it, an absent required key is an error.

    Raises:
        BrimfulError: an unknown key (with the nearest valid one), a wrong type, an absent key.
    """
    complete = _complete(schema, values, "", missing)
    absent = {name: value for name, value in complete.items() if value is missing and missing is not None}
    try:
        if not absent:
            return msgspec.convert(complete, schema, strict=True)
        partial = dict(complete)
        hints = typing.get_type_hints(schema)
        for name, value in complete.items():
            if name not in absent:
                partial[name] = msgspec.convert(value, hints[name], strict=True)
        return schema(**partial)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        at = f"key {place.rstrip('`')}: " if place else ""
        raise BrimfulError(f"{at}{message[0].lower()}{message[1:]}".replace("`", "")) from error


class Verb(Generic[C, R]):
    """A verb: a function of one configuration, which Python callers may also give as keywords."""

    def __init__(self, schema: type[C], run: Callable[[C], R]) -> None:
        self.schema = schema
        self.run = run
        functools.update_wrapper(self, run)

    def __call__(self, config: C | None = None, /, **values: Any) -> R:
        if config is None:
            config = build(self.schema, values)
        elif values:
            raise TypeError("give a configuration or keywords, not both")
        return self.run(config)


def verb(schema: type[C]) -> Callable[[Callable[[C], R]], Verb[C, R]]:
    """Mark `run(config: schema)` as a verb of the command line and of `import brimful`."""
    return lambda run: Verb(schema, run)
