"""Memory of a process: bytes saved for backward, and a limit that an allocation fails at."""

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
    """The most memory that this process has had resident, in MiB. `getrusage` also counts its parent's before
    the process began its program, which the kernel's VmHWM leaves out."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
