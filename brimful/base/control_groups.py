"""Limits of the control groups that this process is in, such as its container's."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from brimful.base.system import kernel_file


def read_groups(
    controller: str, names: Sequence[str], names_v1: Sequence[str], root: Path
) -> Iterator[tuple[Path, list[str]]]:
    """The folder of each control group of this process, the innermost first, and what its files hold.

    A group without these files is left out: the root has no limits, and a container sees its own group as the
    root. So are all groups where there are none (not on Linux).

    Args:
        controller: of control groups v1, whose groups have folders of their own: "cpu", "memory".
        names: the files to read in version 2.
        names_v1: the files to read in version 1.
        root: of the file system with `proc` and `sys`.
    """
    mount = root / "sys/fs/cgroup"
    for line in (kernel_file("proc/self/cgroup", root) or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, files = mount, names
        elif controller in controllers.split(","):
            top, files = mount / controller, names_v1
        else:
            continue
        inner = top / path.lstrip("/")
        for group in (inner, *inner.parents)[: len(inner.parts) - len(top.parts) + 1]:
            values = [kernel_file(name, group) for name in files]
            if None not in values:
                yield group, [value.strip() for value in values if value is not None]
