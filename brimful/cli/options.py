"""The options of a verb, as its configuration declares them, and how texts become their values."""

import ast
import contextlib
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import NoneType
from typing import Any

from brimful.base.config import Argument
from brimful.base.errors import UsageError

HELP_FLAGS = ("--help", "-h", "--help-all")
"""Flags of every verb that print help, and do nothing else."""
REQUIRED = dataclasses.MISSING
"""The default of an option that must be given."""
TYPE_WORDS = {"INT": "a whole number", "FLOAT": "a number", "STR": "text"}
"""The types in help, and what messages call them."""


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
        flag: `--masking.rate`; for a positional option, its name in capitals.
        schema: the configuration, or the group in it, that declares the option.
        path: its place in the configuration of the verb: names of groups, then its own.
        annotation: the type of its value.
        argument: what the configuration says about it besides the type.
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
        """The flags that set the option: two for a switch, none for a positional option."""
        if self.positional:
            return []
        return [self.flag, self.off_flag] if self.switch else [self.flag]

    @property
    def words(self) -> list[str]:
        """The words that a value may be, and the types that it may have, in capitals."""
        words: list[str] = []
        for kind in _value_types(self.annotation):
            words += map(str, _choices(kind) or [kind.__name__.upper()])
        return list(dict.fromkeys(words))

    def takes(self, text: str, texts: Sequence[str]) -> bool:
        """Return whether `text`, the next argument of a command line, is one more value after `texts`."""
        if text.startswith("--"):
            return False
        if self.switch:
            # `--trial file`: True, and a positional argument. `--trial measured`: a value.
            return not texts and self.annotation is not bool and text in self.words
        return self.several or not texts

    def value(self, texts: Sequence[str]) -> Any:
        """Return the value that the texts after a flag stand for.

        Raises:
            UsageError: a text is missing, or has another type.
        """
        if self.switch and not texts:
            return True
        try:
            return _convert(self.annotation, texts)
        except ValueError as error:
            if not texts:
                raise UsageError(f"{self.flag} needs a value: {self._expected()}") from error
            # Each text may fit alone where all together do not.
            wrong = next((text for text in texts if not _fits(self.annotation, text)), " ".join(texts))
            raise UsageError(f"{self.flag} takes {self._expected()}, not {wrong!r}") from error

    def _expected(self) -> str:
        if self.argument.form is not None:
            return self.argument.form
        names = [TYPE_WORDS.get(word, word) for word in self.words]
        if len(names) == 1:
            return names[0]
        return f"{', '.join(names[:-1])} or {names[-1]}"

    def explanation(self) -> str:
        """Return what the option is, on one line."""
        text = self.argument.help or read_docstrings(self.schema).get(self.path[-1], "")
        return " ".join(text.split())


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, None first: the word `None` would also be a valid text, but means None."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return (annotation,)
    return tuple(sorted(typing.get_args(annotation), key=lambda kind: kind is not NoneType))


def _value_types(annotation: Any) -> Iterator[Any]:
    """Yield the types of a single value: int for `int | None` and for `tuple[int, ...]`."""
    for kind in _alternatives(annotation):
        if typing.get_origin(kind) is tuple:
            yield from _value_types(typing.get_args(kind)[0])
        elif kind is not NoneType:
            yield kind


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the values of a type that has few."""
    if kind is bool:
        return True, False
    if kind is NoneType:
        return (None,)
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    return ()


def _convert(annotation: Any, texts: Sequence[str]) -> Any:
    """Return the value of the first type that the texts fit, or raise ValueError."""
    for kind in _alternatives(annotation):
        with contextlib.suppress(ValueError):
            return _convert_to(kind, texts)
    raise ValueError


def _convert_to(kind: Any, texts: Sequence[str]) -> Any:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_convert(item, [text]) for text in texts)
    (text,) = texts
    choices = _choices(kind)
    if not choices:
        read: Callable[[str], Any] = getattr(kind, "from_text", kind)
        return read(text)
    for choice in choices:
        if str(choice) == text:
            return choice
    raise ValueError


def _fits(annotation: Any, text: str) -> bool:
    try:
        _convert(annotation, [text])
    except ValueError:
        return False
    return True


def list_options(
    schema: type, prefix: str = "", path: tuple[str, ...] = (), group: Any = None
) -> list[Option]:
    """Return the options of a configuration and of its groups, in its order.

    Args:
        prefix, path: the place of a group: how its flags begin, and the names of the groups down to it.
        group: an instance of the schema, whose values are the defaults in this place; None at the top.
    """
    options: list[Option] = []
    hints = typing.get_type_hints(schema)
    marked_hints = typing.get_type_hints(schema, include_extras=True)
    for field in dataclasses.fields(schema):
        annotation, argument = hints[field.name], Argument()
        for mark in getattr(marked_hints[field.name], "__metadata__", ()):
            if isinstance(mark, Argument):  # others are checks of paths
                argument = mark
        name, place = prefix + field.name.replace("_", "-"), (*path, field.name)
        default = getattr(group, field.name, field.default)
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if dataclasses.is_dataclass(annotation):
            inner = typing.cast(type, annotation)
            options += list_options(inner, f"{argument.group or name}.", place, default)
        else:
            flag = f"--{name}"
            if argument.positional:
                flag = name.upper()
            options.append(Option(flag, schema, place, annotation, argument, default))
    return options


@cache
def read_docstrings(schema: type) -> dict[str, str]:
    """Return the docstrings below the fields of a configuration and of its bases, by field."""
    texts: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        # Python keeps no docstrings of fields, so they are read from the source.
        (tree,) = typing.cast(list[ast.ClassDef], ast.parse(textwrap.dedent(inspect.getsource(base))).body)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = text
    return texts
