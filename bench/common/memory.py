"""Memory of a process: bytes saved for backward, a limit that an allocation fails at, what is its own."""

import re
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def saved_bytes(forward: Callable[[], object], without: Iterable[Tensor]) -> int:
    """Bytes that a forward pass saves for backward: each storage once, without the tensors `without`."""
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward()  # keeps the saved tensors alive, so that no address is used twice
    for tensor in without:
        saved.pop(tensor.untyped_storage().data_ptr(), None)
    del output
    return sum(saved.values())


def peak_mb() -> float:
    """The most memory that this process has had resident, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def limit_mb(most: int) -> None:
    """Let allocations of this process fail beyond this many MiB of its own data."""
    resource.setrlimit(resource.RLIMIT_DATA, (most << 20, most << 20))


_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)")
_FIELD = re.compile(r"(Private_Clean|Private_Dirty|Anonymous): +(\d+) kB")


def private_mb(process: int, data: Path) -> dict[str, float]:
    """Resident memory that only this process has mapped, in MiB, without and with the files below `data`.

    Returns:
        private: all but those files.
        anonymous: what of that is in no file, so that nothing but swap could take it back.
        data: pages of those files: page cache, which the kernel takes back when it needs memory.
    """
    found = {"private": 0, "anonymous": 0, "data": 0}
    path = ""
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if mapping := _MAPPING.fullmatch(line):
            path = mapping[1]
        elif field := _FIELD.fullmatch(line):
            of = "data" if path.startswith(f"{data}/") else "private"
            found["anonymous" if field[1] == "Anonymous" else of] += int(field[2])
    return {name: size / 1024 for name, size in found.items()}
