"""The sum of a bucket of gradients over ranks, sent in 16 bits and added up in float32.

A sum in two halves, on gloo and NCCL alike. First each rank sends every other rank its part of the bucket in
16 bits (all-to-all), and each adds up the parts that it received in float32. Then the sums travel in 16 bits
too (all-gather). A rank sends 4 * (N - 1) / N bytes for each number, half of what a ring all-reduce sends in
float32. An all-reduce in 16 bits, as torch's own hooks make it, sends the same, but it rounds after every
addition, and float16 overflows in it.

What is sent is divided by a power of two first, so that its largest number lies between 2^14 and 2^15. The
power travels with it. So no size of gradients, no number of ranks and no loss scale overflows, and NaN and
infinity stay visible: they turn the part into NaN.

The error of each number is at most u * (1 + u) * (sum |g_r| + |sum g_r|), where g_r is rank r's number, and u
is 2^-8 for bfloat16 and 2^-11 for float16. In float16, numbers below 2^-28 times the largest of their part
lose more: to this bound comes 2^-39 times that largest number, for each rank and for the sum.
"""

from typing import Any

import torch
from torch import Tensor, nn

from brimful.base.distributed import World, all_gather, all_to_all
from brimful.base.types import Compression
from brimful.precision.policy import DTYPES

_SCALE = 2
"""The 16-bit places behind each part that hold its power of two, a float32."""


class CompressedSum:
    """Sums a bucket in place: begins when it is made, then `advance`, then `wait`.

    Every rank calls them in the same order. Between two calls the host and the device do other work.

    Args:
        flat: float32, 1-D.
        compression: not "none".
    """

    def __init__(self, flat: Tensor, world: World, compression: Compression) -> None:
        self.world = world
        self.dtype = DTYPES[compression]
        self.flat = flat
        self.length = -(-flat.numel() // (2 * world.size)) * 2  # of a part; the last one may end with zeros
        padded = nn.functional.pad(flat, (0, world.size * self.length - flat.numel()))
        sent = _packed(padded.view(world.size, -1), self.dtype)
        self._packed = torch.empty_like(sent)
        self._work: Any = all_to_all(self._packed, sent)
        self._sent = sent
        self._advanced = False

    def advance(self) -> None:
        """Add up this rank's part, and begin to send the sum."""
        if self._advanced:
            return
        self._advanced = True
        self._work.wait()
        first, *others = self._packed.split(1)
        total = _unpacked(first)
        for other in others:
            total += _unpacked(other)
        self._sent, gathered = _packed(total, self.dtype), self._packed
        self._work = all_gather(gathered, self._sent)

    def wait(self) -> None:
        """Put the sum into the bucket: the same bits on every rank."""
        self.advance()
        self._work.wait()
        for part, packed in zip(self.flat.split(self.length), self._packed, strict=False):
            part.copy_(_unpacked(packed[None])[0, : part.numel()])
        del self._packed, self._sent, self._work


def _packed(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """float32 (parts, n) in 16 bits, each part with its power of two behind it: (parts, n + 2)."""
    largest = parts.abs().amax(1, keepdim=True)  # on a CPU five times as fast as the infinite norm
    power = (largest.view(torch.int32) & 0x7F800000).view(torch.float32)  # the exponent alone; NaN -> inf
    power = power.clamp(min=2.0**-100)
    packed = torch.empty(len(parts), parts.size(1) + _SCALE, dtype=dtype, device=parts.device)
    packed[:, :-_SCALE] = parts * (2.0**14 / power)
    packed[:, -_SCALE:].view(torch.float32).copy_(power)
    return packed


def _unpacked(packed: Tensor) -> Tensor:
    """The numbers of some parts in float32."""
    power = packed[:, -_SCALE:].contiguous().view(torch.float32) * 2.0**-14
    return packed[:, :-_SCALE].float().mul_(power)
