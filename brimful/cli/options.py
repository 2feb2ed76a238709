"""The options of a verb, as its configuration declares them."""

import dataclasses
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import tyro


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every verb."""

    config: str | None = None
    """YAML file with this verb's options; flags override it."""
    json: bool = False
    """Print the result as JSON, on one line of stdout."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a verb.

    Attributes:
        schema: the configuration, or the group in it, that declares the option.
        path: its place in the configuration of the verb: names of groups, then its own.
        annotation: the type of its value, and in `metadata` what comes with it.
        required: whether it has no default.
    """

    schema: type
    path: tuple[str, ...]
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


def options_of(schema: type, prefix: str = "", path: tuple[str, ...] = ()) -> dict[str, Option]:
    """The options by flag, with the options of groups; a positional option by its name in capitals."""
    hints = typing.get_type_hints(schema, include_extras=True)
    found: dict[str, Option] = {}
    for field in dataclasses.fields(schema):
        annotation, *metadata = (hints[field.name],)
        if typing.get_origin(annotation) is Annotated:
            annotation, *metadata = typing.get_args(annotation)
        name, place = prefix + field.name.replace("_", "-"), (*path, field.name)
        if tyro.conf.Suppress in metadata:
            continue
        if dataclasses.is_dataclass(annotation):
            renamed = [m.name for m in metadata if getattr(m, "name", None)]
            group = f"{prefix}{renamed[0]}." if renamed else f"{name}."
            found |= options_of(typing.cast(type, annotation), group, place)
            continue
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        option = Option(schema, place, annotation, tuple(metadata), required)
        found[name.upper() if option.positional else f"--{name}"] = option
        found |= {alias: option for m in metadata for alias in getattr(m, "aliases", None) or ()}
        if annotation is bool:
            group, _, last = name.rpartition(".")
            found[f"--{group}{'.' * bool(group)}no-{last}"] = option
    return found


def flags_of(schema: type) -> list[str]:
    """The flags of a verb, in the order of its configuration, then those of every verb."""
    flags = [flag for flag in options_of(schema) | options_of(Common) if flag.startswith("--")]
    return [*flags, "--help", "--help-all"]
