"""Stochastic rounding of float32 to 16 bits: up or down at random, so that the mean is the number itself.

Nearest rounding loses every update below half the spacing of the format. Here a small update rounds up with a
small probability. The random bits are a hash of counters (`brimful.base.randomness`) under a key: the same on
every rank and kind of device, and independent of torch's generators.

Floor: 6 bytes per number, 4 read and 2 written. In addition each number needs 16 random bits, made by about
15 integer operations on words that serve four numbers, and rounding takes 6 (bfloat16) or 12 (float16) more
operations. On a CPU these stay within the cache, but they take most of the time: 15 to 30 times the floor
(`bench.precision.rounding`). 16 bits of the hash took 1.1 to 1.4 ns of a thread, the same as torch's Mersenne
Twister, which other devices don't have. A hash of 32 bits and numpy's SFC64 took 0.7 ns.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.randomness import hash_words

_WORDS = 1 << 15
_BLOCK = 4 * _WORDS
"""Numbers under one key. A word of the hash serves four of them."""
_EXPONENT = 0x7F800000  # of a float32


def round_stochastically(source: Tensor, dtype: torch.dtype, key: int) -> Tensor:
    """Round to one of the two nearest numbers of a 16-bit format; the nearer one is more likely.

    The mean over keys is the number itself: exactly for bfloat16 and for normal float16, and to 2^-19 of the
    spacing for subnormal float16. Numbers that the format can represent stay as they are, with signed zeros,
    infinities and NaN. Finite numbers beyond the format become its largest number, so that no weight becomes
    infinite at random.

    Args:
        source: float32, of any shape.
        dtype: bfloat16 or float16.
        key: 64 bits, from `base.randomness.derive_key`. A number's random bits are a function of the key,
            its place and, in the last block, the length of the block.

    Returns:
        a contiguous tensor of `dtype` and the shape of `source`.

    Raises:
        BrimfulError: another dtype.
    """
    if source.dtype != torch.float32 or dtype not in (torch.bfloat16, torch.float16):
        raise BrimfulError(
            f"stochastic rounding is from float32 to bfloat16 or float16, not {source.dtype} to {dtype}"
        )
    rounded = torch.empty(source.shape, dtype=dtype, device=source.device)
    largest = torch.finfo(dtype).max
    bits = 16 if dtype == torch.bfloat16 else 19
    for part, out, keys in _blocks(source.contiguous().view(-1), rounded.view(-1), key):
        within = part.clamp(-largest, largest)
        noise = _noise(keys, part.shape[1], bits)
        near = _bfloat16(within, noise) if dtype == torch.bfloat16 else _float16(within, noise)
        # On a CPU, where reading a value does not wait, the sum tells cheaply whether all are finite.
        if part.device.type != "cpu" or not part.sum().isfinite():
            near = torch.where(part.isfinite(), near, part)
        out.copy_(near)
    return rounded


def _blocks(source: Tensor, out: Tensor, key: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Pieces of both, (blocks, numbers), and the blocks' keys: one at a time on a CPU, for its cache."""
    full = len(source) // _BLOCK
    words = hash_words(np.uint64(key), np.arange(full + 1)).view(np.int64)
    keys = _sent(torch.from_numpy(words), source.device)
    together = 1 if source.device.type == "cpu" else 64
    for at in range(0, full, together):
        end = min(at + together, full)
        here = slice(at * _BLOCK, end * _BLOCK)
        yield source[here].view(-1, _BLOCK), out[here].view(-1, _BLOCK), keys[at:end]
    if len(source) > full * _BLOCK:
        yield source[None, full * _BLOCK :], out[None, full * _BLOCK :], keys[full:]


def _sent(words: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. CUDA copies from pinned memory alone beside the host."""
    words = words.pin_memory() if device.type == "cuda" else words
    return words.to(device, non_blocking=True)


def _bfloat16(x: Tensor, noise: Tensor) -> Tensor:
    """Add noise to the low 16 bits, then clear them: a carry rounds up."""
    return x.view(torch.int32).add_(noise).bitwise_and_(-1 << 16).view(torch.float32)


def _float16(x: Tensor, noise: Tensor) -> Tensor:
    """The floor of x + noise in fixed point, with 19 bits below the spacing of float16 at x.

    The spacing is 2^(e - 10) for 2^e <= |x| < 2^(e + 1). Below e = -14 it stays the same.
    """
    exponent = x.view(torch.int32).bitwise_and(_EXPONENT).clamp_(min=127 - 14 << 23)
    factor = exponent.bitwise_xor_(_EXPONENT).add_(28 << 23).view(torch.float32)  # 2^(10 + 19 - e)
    fixed = (x * factor).to(torch.int32).add_(noise).bitwise_and_(-1 << 19)
    return fixed.to(torch.float32).div_(factor).copysign_(x)


def _noise(keys: Tensor, count: int, bits: int) -> Tensor:
    """int32 (blocks, count) in range(2**bits), bits at least 16. Two numbers share the middle of 32 bits."""
    words = _mix(_counters(keys.device)[: -(-count // 4)] ^ keys[:, None]).view(torch.int32)
    half = words.shape[1]
    noise = torch.empty((len(keys), 2 * half), dtype=torch.int32, device=keys.device)
    torch.bitwise_right_shift(words, 32 - bits, out=noise[:, half:])
    noise[:, :half] = words
    return noise.bitwise_and_((1 << bits) - 1)[:, :count]


@lru_cache
def _counters(device: torch.device) -> Tensor:
    return _mix(torch.arange(_WORDS, dtype=torch.int64, device=device))


def _mix(x: Tensor) -> Tensor:
    """`base.randomness.mix` on int64, in place. A shift copies the sign bit, so the copies are masked."""
    x.add_(0x9E3779B97F4A7C15 - (1 << 64))
    room = torch.empty_like(x)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
        torch.bitwise_right_shift(x, shift, out=room)
        x.bitwise_xor_(room.bitwise_and_((1 << 64 - shift) - 1))
        if factor is not None:
            x.mul_(factor - (1 << 64))
    return x
