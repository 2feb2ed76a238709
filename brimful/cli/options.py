"""The options of a verb, as its configuration declares them, and how texts become their values."""

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Any

from brimful.base.config import Argument
from brimful.base.errors import UsageError

HELP_FLAGS = ("--help", "-h", "--help-all")
"""Flags of every verb that print help, and do nothing else."""
REQUIRED = dataclasses.MISSING
"""The default of an option that has none."""


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
        flag: `--masking.rate`; of a positional option its name in capitals.
        schema: the configuration, or the group in it, that declares the option.
        path: its place in the configuration of the verb: names of groups, then its own.
        annotation: the type of its value.
        argument: what the configuration says about it beside the type.
        default: its value where none is given, or `REQUIRED`.
    """

    flag: str
    schema: type
    path: tuple[str, ...]
    annotation: Any
    argument: Argument
    default: Any

    @property
    def key(self) -> str:
        """Its key in a file of settings: `masking.final_rate`."""
        return ".".join(self.path)

    @property
    def positional(self) -> bool:
        return self.argument.positional

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def several(self) -> bool:
        """Whether it takes any number of values."""
        return any(typing.get_origin(kind) is tuple for kind in _alternatives(self.annotation))

    @property
    def switch(self) -> bool:
        """Whether the flag stands for True, without a value."""
        return bool in _alternatives(self.annotation)

    @property
    def off_flag(self) -> str:
        """The flag that sets a switch to False: `--clean.no-garbage`."""
        group, dot, name = self.flag.removeprefix("--").rpartition(".")
        return f"--{group}{dot}no-{name}"

    @property
    def flags(self) -> list[str]:
        """The flags that set the option: of a switch two, of a positional option none."""
        if self.positional:
            return []
        return [self.flag, self.off_flag] if self.switch else [self.flag]

    @property
    def words(self) -> list[str]:
        """What a value may be: words to choose from, and types in capitals."""
        words: list[str] = []
        for kind in _value_types(self.annotation):
            choices = _choices(kind)
            words += map(str, choices) if choices else [kind.__name__.upper()]
        return list(dict.fromkeys(words))

    def takes(self, text: str, texts: Sequence[str]) -> bool:
        """Whether the option takes the next argument of a command line too, after `texts`."""
        if text.startswith("--"):
            return False
        if self.switch:
            return not texts and self.annotation is not bool and text in self.words
        return self.several or not texts

    def value(self, texts: Sequence[str]) -> Any:
        """The value that the texts after a flag stand for.

        Raises:
            UsageError: a text is missing, or has another type.
        """
        if self.switch and not texts:
            return True
        try:
            return _read(self.annotation, texts)
        except ValueError as error:
            if not texts:
                raise UsageError(f"{self.flag} needs a value: {self._expected()}") from error
            wrong = [text for text in texts if not _fits(self.annotation, text)]
            text = repr(wrong[0] if wrong else " ".join(texts))
            raise UsageError(f"{self.flag} takes {self._expected()}, not {text}") from error

    def _expected(self) -> str:
        if self.argument.form is not None:
            return self.argument.form
        named = {"INT": "a whole number", "FLOAT": "a number", "STR": "text"}
        *others, last = [named.get(word, word) for word in self.words]
        return f"{', '.join(others)} or {last}" if others else last

    def explanation(self) -> str:
        """What an option is, on one line."""
        text = self.argument.help or docstrings_of(self.schema).get(self.path[-1], "")
        return " ".join(text.split())


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, None first: `None` is a value of its own where a text would do too."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return (annotation,)
    return tuple(sorted(typing.get_args(annotation), key=lambda kind: kind is not NoneType))


def _value_types(annotation: Any) -> Iterator[Any]:
    """The types of a single value: of `int | None` and of `tuple[int, ...]`, int."""
    for kind in _alternatives(annotation):
        if typing.get_origin(kind) is tuple:
            yield from _value_types(typing.get_args(kind)[0])
        elif kind is not NoneType:
            yield kind


def _choices(kind: Any) -> tuple[Any, ...]:
    """The values of a type that has few."""
    if kind is bool:
        return True, False
    if kind is NoneType:
        return (None,)
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _read(annotation: Any, texts: Sequence[str]) -> Any:
    """The value of the first type that the texts fit.

    Raises:
        ValueError: they fit no type.
    """
    for kind in _alternatives(annotation):
        try:
            return _read_as(kind, texts)
        except ValueError:
            continue
    raise ValueError


def _read_as(kind: Any, texts: Sequence[str]) -> Any:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_read(item, [text]) for text in texts)
    (text,) = texts
    if choices := _choices(kind):
        (choice,) = (each for each in choices if str(each) == text)
        return choice
    read: Callable[[str], Any] = getattr(kind, "from_text", kind)
    return read(text)


def _fits(annotation: Any, text: str) -> bool:
    try:
        _read(annotation, [text])
    except ValueError:
        return False
    return True


def options_of(schema: type) -> list[Option]:
    """The options of a configuration and of its groups, in its order."""
    return list(_options(schema, "", (), None))


def _options(schema: type, prefix: str, path: tuple[str, ...], default: Any) -> Iterator[Option]:
    """`default` is an instance of the schema: a group's default in its parent."""
    hints = typing.get_type_hints(schema, include_extras=True)
    for field in dataclasses.fields(schema):
        annotation, argument = hints[field.name], Argument()
        if typing.get_origin(annotation) is Annotated:
            annotation, argument = typing.get_args(annotation)
        name, place = prefix + field.name.replace("_", "-"), (*path, field.name)
        own = getattr(default, field.name, field.default)
        if field.default_factory is not dataclasses.MISSING:
            own = field.default_factory()
        if dataclasses.is_dataclass(annotation):
            group = argument.group or name
            yield from _options(typing.cast(type, annotation), f"{group}.", place, own)
        else:
            flag = name.upper() if argument.positional else f"--{name}"
            yield Option(flag, schema, place, annotation, argument, own)


@cache
def docstrings_of(schema: type) -> dict[str, str]:
    """What stands below the fields of a configuration and of its bases."""
    texts: dict[str, str] = {}
    for each in filter(dataclasses.is_dataclass, reversed(schema.__mro__)):
        (tree,) = typing.cast(list[ast.ClassDef], ast.parse(textwrap.dedent(inspect.getsource(each))).body)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = text
    return texts
