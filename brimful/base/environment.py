"""Environment variables that launchers set: numbers, or one line that says which variable is wrong."""

import os

from brimful.base.errors import BrimfulError


def number_of(variable: str, default: int) -> int:
    """The whole number in an environment variable, from 0.

    Raises:
        BrimfulError: it holds something else.
    """
    value = os.environ.get(variable)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise BrimfulError(
            f"the environment variable {variable} is {value[:40]!r}, not a whole number; torchrun sets it,"
            f" so without torchrun: unset {variable}"
        )
    return int(value)


def rank_and_size() -> tuple[int, int]:
    """RANK and WORLD_SIZE as torchrun sets them; 0 and 1 without it.

    Raises:
        BrimfulError: one of them is no number, they contradict each other, or several ranks have no address
            to meet at.
    """
    rank, size = number_of("RANK", 0), number_of("WORLD_SIZE", 1)
    if rank >= size:
        raise BrimfulError(
            f"the environment says RANK={rank} of WORLD_SIZE={size}: ranks are 0 to WORLD_SIZE - 1; start"
            " several processes with torchrun, or unset both"
        )
    if size > 1:
        absent = [v for v in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(v)]
        if absent:
            raise BrimfulError(
                f"the environment says WORLD_SIZE={size}, but not {', '.join(absent)}: start the processes"
                " with torchrun, or unset WORLD_SIZE for one process"
            )
        number_of("MASTER_PORT", 0)
    return rank, size
