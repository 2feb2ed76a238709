"""Every option of every verb says what it is."""

import dataclasses
import typing
from collections.abc import Iterator

import pytest

from brimful.cli.help import documented
from brimful.cli.main import load_verb
from brimful.cli.options import Common
from brimful.cli.verbs import VERBS


def options(schema: type, group: str = "") -> Iterator[tuple[str, str]]:
    """The options of a configuration, and what each says."""
    said = documented(schema)
    for name, annotation in typing.get_type_hints(schema, include_extras=True).items():
        helps = [getattr(each, "help", None) for each in getattr(annotation, "__metadata__", ())]
        kind = typing.get_args(annotation)[0] if helps else annotation
        if dataclasses.is_dataclass(kind):
            yield from options(typing.cast(type, kind), f"{group}{name}.")
        else:
            yield group + name, next(filter(None, helps), said.get(name, ""))


@pytest.mark.parametrize("verb", [*VERBS, "common"])
def test_every_option_says_what_it_is(verb: str) -> None:
    """In a sentence or more: most name when it is set."""
    schema = Common if verb == "common" else load_verb(verb).schema
    found = dict(options(schema))
    assert found
    assert [name for name, said in found.items() if not said.strip().endswith((".", '"'))] == []
