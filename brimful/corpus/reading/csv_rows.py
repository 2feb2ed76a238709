"""Rows of CSV (RFC 4180). A quote that is never closed costs its own line and no other."""

import csv
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

# A row of more characters than this is taken for an unclosed quote.
LONGEST_ROW = 1 << 24
# Each line counts this much on top of its characters, to bound the memory of many short lines.
_LINE_COST = 16
# Characters that may be read twice, beside those of good rows. This keeps the time linear.
_SPARE = 4 * LONGEST_ROW


class CsvRows:
    """Iterates over the rows of CSV. An empty line gives an empty row, and so does a row that is given up.

    A quote counts as never closed if the file ends in it, if it closes within a word of a later line, or
    after 16 MB. Then the first line of its row is given up, and the lines after it are read again. Rows of
    another width than the first row count as lost until a good row has been read from new lines. Within one
    line, quotes may stand anywhere.

    Args:
        lines: without line ends; None stands for a line that was too long.
        issues: counts the lost lines.
    """

    def __init__(self, lines: Iterable[str | None], issues: Counter[str]) -> None:
        csv.field_size_limit(2 * LONGEST_ROW)
        self._issues = issues
        self._new: Iterator[str | None] = chain.from_iterable(
            [None] if line is None else [f"{part}\n" for part in line.split("\r")] for line in lines
        )
        self._again: deque[str | None] = deque()
        # The lines of the current row and their cost.
        self._held: list[Any] = []
        self._cost = 0

    def __iter__(self) -> Iterator[list[str]]:
        rows = self._reader()
        width, spare = 0, _SPARE
        is_doubtful = False
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                rows = self._reader()
                is_at_end = "end of data" in str(error)
                if len(self._held) == 1 and not is_at_end:
                    row = [] if self._held[0] is None else next(csv.reader(self._held), [])
                else:
                    spare -= self._cost
                    self._give_up(is_at_end, spare < 0)
                    is_doubtful = True
                    yield []
                    continue
            if row is None:
                return
            width = width or len(row)
            if is_doubtful and len(row) not in (0, width):
                self._issues["lines skipped after a quote that is never closed"] += len(self._held)
            else:
                is_doubtful = is_doubtful and bool(self._again or not row)
                spare += self._cost
                yield row
            self._held.clear()
            self._cost = 0

    def _reader(self) -> Any:
        return csv.reader(self._lines(), strict=True)

    def _lines(self) -> Iterator[Any]:
        """The lines, held until their row ends; None makes the reader fail."""
        held = self._held
        for line in chain(self._read_again(), self._new):
            held.append(line)
            self._cost += len(line or "") + _LINE_COST
            yield line if self._cost <= LONGEST_ROW or len(held) == 1 else None

    def _read_again(self) -> Iterator[str | None]:
        while self._again:
            yield self._again.popleft()

    def _give_up(self, is_at_end: bool, all_of_it: bool) -> None:
        """Give up the first held line and read the others again, or give up all of them."""
        is_too_long = not is_at_end and self._cost > LONGEST_ROW
        what = "quote not closed within 16 MB" if is_too_long else "quote never closed"
        self._issues[f"{what}, its line skipped"] += 1
        if all_of_it:
            self._issues["lines skipped after a quote that is never closed"] += len(self._held) - 1
        else:
            self._again.extendleft(reversed(self._held[1:]))
        self._held.clear()
        self._cost = 0
