"""Configurations are strict dataclasses, read from YAML files and from keywords; unknown keys are errors.

A verb is a function of one frozen dataclass. In Python, `pretrain(data="data", trainer={"steps": 10})` equals
the YAML file with those keys (`cli.functions`).
"""

import dataclasses
import hashlib
import json
import os
import re
import typing
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml

from brimful.base.errors import BrimfulError, require_range, suggest_name
from brimful.base.storage import AnyPath, atomic_file, readable
from brimful.base.types import Facts, Values

C = TypeVar("C")


class _Loader(yaml.SafeLoader):
    """A SafeLoader that reads `1e-3` as a number (YAML 1.1 requires `1.0e-3`).

    It refuses aliases, which may repeat a value without end, keys that stand twice, and characters that no
    setting has.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _refused(self.peek_event(), "an alias: write the value instead")
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            # Python uses U+DC80 to U+DCFF for the bytes of a path that are not UTF-8: these are allowed.
            character = re.search("[\0\ud800-\udc7f\udd00-\udfff]", node.value)
            if character:
                raise _refused(node, f"the character U+{ord(character[0]):04X} may not stand in a text")
        elif isinstance(node, yaml.MappingNode):
            names = Counter((key.tag, str(key.value)) for key, _ in node.value)
            for key, _ in node.value:
                count = names[key.tag, str(key.value)]
                if count > 1:
                    raise _refused(key, f"the key {key.value} stands {count} times")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        kind = node.tag.rpartition(":")[2]
        if kind in ("binary", "omap", "pairs", "set"):
            raise _refused(node, f"no setting is a {kind}")
        try:
            return super().construct_object(node, deep)
        # Such as `!!float x`, and the date 2020-13-45.
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise _refused(node, f"the value is no {kind}") from error


def _refused(node: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


class _Dumper(yaml.SafeDumper):
    """A SafeDumper whose texts `_Loader` reads as they were: '1e-3' is quoted, and line ends are escaped."""

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


def read_yaml(path: AnyPath) -> Values:
    """Read a YAML mapping: UTF-8, or UTF-16 with a byte order mark.

    Raises:
        BrimfulError: the file is absent, not YAML, or not a mapping; a key stands twice; there is an alias; a
            text holds a character that no file name can.
    """
    with readable(path):
        content = Path(path).read_bytes()
    # Notepad writes UTF-16, or UTF-8 with a byte order mark.
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


def write_yaml(path: AnyPath, config: Any) -> None:
    """Write a configuration as YAML, atomically; `build(type(config), read_yaml(path))` gives it back."""
    with atomic_file(path) as temporary:
        text = yaml.dump(to_dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        temporary.write_text(text, encoding="utf-8")


def to_dict(config: Any) -> Values:
    """Return the configuration as plain JSON values."""
    return msgspec.to_builtins(config)


def config_hash(config: Any) -> str:
    """Return a short hash of a configuration, or of any JSON value, to name the result made with it."""
    value = msgspec.to_builtins(config)
    # Sorted, so that the order of keys in a file does not matter.
    try:
        text = msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:  # a path that is not UTF-8
        text = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def incidental(default: Any) -> Any:
    """Mark a configuration field that does not decide a run's result, and give its default.

    All other fields count in `identity`. So a new field counts unless it is marked, and a run that was
    interrupted before the field existed does not resume.
    """
    return dataclasses.field(default=default, metadata={"decides": False})


def identity(config: Any) -> Any:
    """Return the configuration as plain JSON values, at every level without its `incidental` fields.

    The identity and the data decide a run's bits: a run resumes only with the same identity.
    """
    if dataclasses.is_dataclass(config):
        values = {}
        for field in dataclasses.fields(config):
            if field.metadata.get("decides", True):
                values[field.name] = identity(getattr(config, field.name))
        return values
    if isinstance(config, list | tuple):
        return [identity(item) for item in config]
    return to_dict(config)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Argument:
    """How a field stands on a command line, beside its type: `Annotated[tuple[str, ...], Argument(...)]`.

    Attributes:
        positional: whether it has no flag.
        group: the name of a group in flags, where it differs from the field's.
        form: the placeholder of its value in help and errors.
        help: its description, in place of the docstring below the field.
    """

    positional: bool = False
    group: str | None = None
    form: str | None = None
    help: str | None = None


def build(schema: type[C], values: Facts) -> C:
    """Make a configuration from plain values, checking every key and type.

    A schema may have a class method `defaults`, which gives the values that are left out.

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
        # msgspec writes "Expected `int`, got `str` - at `$.masking.rate`".
        problem, _, place = str(error).replace("`", "").partition(" - at $")
        absent = re.fullmatch("Object missing required field (.*)", problem)
        if absent:
            raise BrimfulError(f"key {f'{place}.{absent[1]}'.strip('.')} is required") from error
        raise BrimfulError(f"key {place.strip('.')}: {problem[0].lower()}{problem[1:]}") from error


def _plain(value: Any) -> Any:
    """Turn groups into mappings and paths into texts. msgspec refuses other objects, and names their key."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def fill_defaults(schema: type, values: Facts) -> Values:
    """Return the values over the schema's defaults, by field name. Unknown keys raise as in `build`."""
    if hasattr(schema, "defaults"):
        _fill(schema, values)  # an unknown key is refused before defaults are chosen by it
        values = merge(schema.defaults(flatten(values)), values)
    return _fill(schema, values)


def merge(below: Facts, above: Facts) -> Values:
    """Merge two nested mappings, with underscores in keys. Values of `above` replace values of `below`."""
    merged = {to_field_name(key): value for key, value in below.items()}
    for key, value in above.items():
        name = to_field_name(key)
        if isinstance(value, Mapping):
            group = merged.get(name)
            value = merge(group if isinstance(group, Mapping) else {}, value)
        merged[name] = value
    return merged


def _fill(schema: type, values: Facts, where: str = "", default: Any = None) -> Values:
    """Fill the fields of a schema with values, and with defaults where there is no value."""
    hints = typing.get_type_hints(schema)
    fields = {field.name: field for field in dataclasses.fields(schema)}
    filled = {}
    # msgspec would leave a default on the class, where encoding a configuration does not look.
    for name, field in fields.items():
        if field.default is not dataclasses.MISSING:
            filled[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            filled[name] = field.default_factory()
    # The default of a group in its parent goes before the group's own defaults.
    if isinstance(default, dict) or dataclasses.is_dataclass(default):
        filled |= msgspec.to_builtins(default)
    for key, value in values.items():
        name = to_field_name(key)
        place = where + name
        if name not in fields:
            raise BrimfulError(f"unknown key {where}{key!s}: {suggest_name(name, fields)}")
        group, is_list = _find_group(hints[name])
        if group is not None and is_list and isinstance(value, list | tuple):
            value = list(value)
            for i, part in enumerate(value):
                if isinstance(part, Mapping):
                    value[i] = _fill(group, part, f"{place}[{i}].")
        elif group is not None and not is_list and isinstance(value, Mapping):
            value = _fill(group, value, f"{place}.", filled.get(name))
        filled[name] = value
    return filled


def to_field_name(key: object) -> str:
    """Return a key as the name of a field: `final-rate` as `final_rate`."""
    return str(key).replace("-", "_")


def _find_group(annotation: Any) -> tuple[type | None, bool]:
    """Return the dataclass that an annotation is or allows, and whether it stands in a tuple."""
    # The parts of `Group | None`, of `tuple[Group, ...]`, or of an Annotated.
    for part in (annotation, *typing.get_args(annotation)):
        if dataclasses.is_dataclass(part):
            return typing.cast(type, part), False
        if typing.get_origin(part) is tuple:
            group, _ = _find_group(typing.get_args(part)[0])
            if group is not None:
                return group, True
    return None, False


def flatten(values: Facts, where: str = "") -> Values:
    """Flatten groups: {"masking": {"final-rate": 0.2}} -> {"masking.final_rate": 0.2}."""
    flat: Values = {}
    for key, value in values.items():
        name = where + to_field_name(key)
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def require_positive(config: Any, *names: str, group: str = "") -> None:
    """Refuse a whole number below 1 in the fields `names`; see `require_range`."""
    require_range(config, "at least 1", *names, group=group)


def require_seeds(*seeds: int) -> None:
    """Refuse a seed that does not fit the 64 bits of torch's and Brimful's keys."""
    for seed in seeds:
        if not -(1 << 63) <= seed < 1 << 64:
            raise BrimfulError(f"seed is {seed}: it must fit 64 bits, from -2^63 to 2^64 - 1")


class Verb(NamedTuple):
    """A function of one configuration, which a command line or keywords make.

    Attributes:
        run: the function.
        show: prints the result for a person; without it, the command line lists the values.
    """

    schema: type
    run: Callable[[Any], Values]
    show: Callable[[Values], None] | None = None


def verb(
    schema: type[C], show: Callable[[Values], None] | None = None
) -> Callable[[Callable[[C], Values]], Verb]:
    """Mark `run(config: schema)` as a verb of the command line and of `import brimful`."""
    return lambda run: Verb(schema, run, show)
