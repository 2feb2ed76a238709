"""Batches of texts by their characters, so that memory does not grow with a corpus."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

R = TypeVar("R")


def batch_by_characters(
    items: Iterable[R], max_characters: int, count_characters: Callable[[R], int]
) -> Iterator[list[R]]:
    """Yield the items in lists, each of which ends with the item that reaches `max_characters`."""
    batch: list[R] = []
    size = 0
    for item in items:
        batch.append(item)
        size += count_characters(item)
        if size >= max_characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
