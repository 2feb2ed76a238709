"""Copies of tensors in host memory, which a CUDA device makes beside its work."""

from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor

CHUNK = 64 << 20
"""The least bytes that are pinned at a time."""
ALIGNMENT = 64
"""Bytes; every number format begins at a multiple of it."""


class HostCopies:
    """Copies the tensors of one device, one set after another, into the same memory.

    Tensors on the CPU are copied at once. Those of a CUDA device are copied on a stream of their own into
    pinned memory, and nobody waits but who must: the device before it changes a tensor (`before_change`), the
    host before it reads a copy (`wait`). Pinning waits for the device, so what the first set has allocated is
    kept. Torch pins powers of two: up to twice the bytes of the tensors, and CHUNK. If no memory can be
    pinned, the host waits for each copy.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._sources: list[Tensor] = []
        self._stream: torch.cuda.Stream | None = None
        self._copied: torch.cuda.Event | None = None

    def begin(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Begin to copy tensors as the current stream leaves them. The copies before are overwritten.

        Args:
            tensors: by name, in any memory layout. They are kept until they are copied.

        Returns:
            contiguous tensors on the CPU, by name, that hold the copies after `wait`.
        """
        on_device = {name: tensor.detach() for name, tensor in tensors.items() if tensor.is_cuda}
        if on_device:
            self._reserve(on_device)
            self._sources = list(on_device.values())
            device = next(iter(on_device.values())).device
            self._stream = self._stream or torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(self._stream):
                for name, tensor in on_device.items():
                    self._buffers[name].copy_(tensor, non_blocking=True)
                self._copied = torch.cuda.Event(blocking=True)
                self._copied.record()
        return {
            name: self._buffers[name] if name in on_device else tensor.detach().to("cpu", copy=True)
            for name, tensor in tensors.items()
        }

    def before_change(self) -> None:
        """Let the device finish the copies before what the current stream does next. The host goes on."""
        if (copied := self._copied) is not None:  # `wait`, in another thread, may drop it meanwhile
            assert self._stream is not None
            torch.cuda.current_stream(self._stream.device).wait_event(copied)

    def wait(self) -> None:
        """Wait until the copies are made. Any thread may call it."""
        if self._copied is not None:
            self._copied.synchronize()
        self._copied, self._sources = None, []

    def _reserve(self, tensors: Mapping[str, Tensor]) -> None:
        """Make `_buffers` hold a tensor like each of these."""
        chunk, used = torch.empty(0, dtype=torch.uint8), 0
        for name, tensor in tensors.items():
            buffer = self._buffers.get(name)
            if buffer is not None and (buffer.shape, buffer.dtype) == (tensor.shape, tensor.dtype):
                continue
            if used + tensor.nbytes > len(chunk):
                chunk, used = _pinned(max(CHUNK, tensor.nbytes)), 0
            self._buffers[name] = chunk[used : used + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            used += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT


def _pinned(size: int) -> Tensor:
    """uint8: at least `size` bytes, pinned if possible. Torch pins powers of two, so all of one is used."""
    size = 1 << (size - 1).bit_length()
    with suppress(RuntimeError):
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    return torch.empty(size, dtype=torch.uint8)
