"""Batches of texts, by their characters, so that memory does not grow with a corpus."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

R = TypeVar("R")


def batch_by_characters(items: Iterable[R], most: int, characters: Callable[[R], int]) -> Iterator[list[R]]:
    """Items in groups of about `most` characters."""
    group: list[R] = []
    size = 0
    for item in items:
        group.append(item)
        size += characters(item)
        if size >= most:
            yield group
            group, size = [], 0
    if group:
        yield group
