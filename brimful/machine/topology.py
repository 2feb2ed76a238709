"""Which way GPUs of a host reach each other: the matrix of `nvidia-smi topo -m`."""

import re
from itertools import combinations

from brimful.base.errors import BrimfulError

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # the driver underlines the header, even in a file


def parse_topology(text: str) -> dict[tuple[int, int], str]:
    """The kind of link of each two GPUs, by their numbers in nvidia-smi, the lower one first: NV18, PIX ...

    Args:
        text: the matrix that `nvidia-smi topo -m` prints, with tabs or as it was copied from a terminal.

    Raises:
        BrimfulError: it is no such matrix, or a row of it is missing or cut short.
    """
    lines = [_ESCAPE.sub("", line).split() for line in text.splitlines()]
    header, *rest = [line for line in lines if line] or [[]]
    columns = [name for name in header if re.fullmatch(r"GPU\d+", name)]  # before those of other devices
    if not columns:
        raise BrimfulError("nvidia-smi topo -m names no GPU")
    rows = {line[0]: line[1:] for line in rest}
    for name in columns:
        if len(rows.get(name, [])) < len(columns):
            raise BrimfulError(f"nvidia-smi topo -m: the row of {name} is missing or cut short")
    return {(int(a[3:]), int(b[3:])): rows[a][columns.index(b)] for a, b in combinations(columns, 2)}
