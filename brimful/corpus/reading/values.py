"""Lists that stand for texts."""

from typing import Any

JOINED_SENTENCES = "has lists of sentences, joined by line ends"


def is_list_of(value: Any, kinds: Any) -> bool:
    """Return whether a value is a list whose elements have these types."""
    return isinstance(value, list) and all(isinstance(element, kinds) for element in value)
