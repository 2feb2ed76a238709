"""Stochastic rounding of float32 to 16 bits: up or down at random, so that the mean is the number itself.

Rounding to nearest loses every update below half the spacing of the format. Here a small update rounds up
with a small probability (Gupta et al. 2015, "Deep Learning with Limited Numerical Precision", section 3). The
random bits are a hash of counters (`brimful.base.randomness`) under a key: the same on every rank and kind of
device, and independent of torch's generators.

Least work: 6 bytes per number, 4 read and 2 written. In addition each number needs 16 random bits, made by
about 15 integer operations on words that serve four numbers, and rounding takes 6 (bfloat16) or 12 (float16)
more operations. On a CPU their numbers stay within the cache, but the operations take most of the time, 15 to
30 times that of the least work (`bench.precision.rounding`). 16 bits of the hash took 1.1 to 1.4 ns of a
thread, the same as torch's Mersenne Twister, which other devices don't have. A hash of 32 bits and numpy's
SFC64 took 0.7 ns.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.randomness import hash_words

_BLOCK_WORDS = 1 << 15
"""The number of words of the hash under one key."""
_BLOCK = 4 * _BLOCK_WORDS
"""The count of numbers under one key: a word of 64 bits serves four numbers."""
_EXPONENT_BITS = 0x7F800000  # of a float32


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
    random_bits = 16 if dtype == torch.bfloat16 else 19
    round_block = _round_to_bfloat16 if dtype == torch.bfloat16 else _round_to_float16
    for part, out, keys in _blocks(source.contiguous().view(-1), rounded.view(-1), key):
        noise = _draw_noise(keys, part.shape[1], random_bits)  # (blocks, numbers)
        result = round_block(part.clamp(-largest, largest), noise)
        # Infinities and NaN stay as they are. On a CPU, a value can be read without waiting, and a finite sum
        # shows cheaply that all numbers are finite.
        if part.device.type != "cpu" or not part.sum().isfinite():
            result = torch.where(part.isfinite(), result, part)
        out.copy_(result)
    return rounded


def _blocks(source: Tensor, out: Tensor, key: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield pieces of both tensors, (blocks, numbers), and the blocks' keys, (blocks,)."""
    device = source.device
    full_blocks = len(source) // _BLOCK
    keys = torch.from_numpy(hash_words(np.uint64(key), np.arange(full_blocks + 1)).view(np.int64))
    if device.type == "cuda":  # CUDA copies without waiting only from pinned memory
        keys = keys.pin_memory()
    keys = keys.to(device, non_blocking=True)
    # One block at a time stays in a CPU's cache; a GPU wants fewer and larger kernels.
    blocks_at_once = 1 if device.type == "cpu" else 64
    for first in range(0, full_blocks, blocks_at_once):
        end = min(first + blocks_at_once, full_blocks)
        numbers = slice(first * _BLOCK, end * _BLOCK)
        yield source[numbers].view(-1, _BLOCK), out[numbers].view(-1, _BLOCK), keys[first:end]
    start = full_blocks * _BLOCK
    if len(source) > start:
        yield source[None, start:], out[None, start:], keys[full_blocks:]


def _round_to_bfloat16(x: Tensor, noise: Tensor) -> Tensor:
    """Add noise to the low 16 bits, then clear them: a carry rounds up."""
    return x.view(torch.int32).add_(noise).bitwise_and_(-1 << 16).view(torch.float32)


def _round_to_float16(x: Tensor, noise: Tensor) -> Tensor:
    """Return the floor of x + noise in fixed point, with 19 bits below the spacing of float16 at x.

    The spacing is 2^(e - 10) for 2^e <= |x| < 2^(e + 1). Below e = -14 it stays the same.
    """
    # The bits of a float32 are sign, exponent + 127, fraction: integer operations on the middle ones make
    # powers of 2. XOR with all exponent bits negates an exponent, up to the constant 28 that is added.
    exponent = x.view(torch.int32).bitwise_and(_EXPONENT_BITS).clamp_(min=127 - 14 << 23)
    factor = exponent.bitwise_xor_(_EXPONENT_BITS).add_(28 << 23).view(torch.float32)  # 2^(10 + 19 - e)
    fixed = (x * factor).to(torch.int32).add_(noise).bitwise_and_(-1 << 19)
    # The sign is copied, since fixed point has no -0.
    return fixed.to(torch.float32).div_(factor).copysign_(x)


def _draw_noise(keys: Tensor, count: int, bits: int) -> Tensor:
    """Return int32 (blocks, count) in range(2**bits), bits at least 16; two numbers share 32 bits of hash."""
    counters = _counters(keys.device)[: -(-count // 4)]
    words = _mix(counters ^ keys[:, None]).view(torch.int32)  # (blocks, count / 2), rounded up
    half = words.shape[1]
    noise = torch.empty((len(keys), 2 * half), dtype=torch.int32, device=keys.device)
    torch.bitwise_right_shift(words, 32 - bits, out=noise[:, half:])  # the upper bits
    noise[:, :half] = words  # the lower ones, after the mask
    return noise.bitwise_and_((1 << bits) - 1)[:, :count]


@lru_cache
def _counters(device: torch.device) -> Tensor:
    return _mix(torch.arange(_BLOCK_WORDS, dtype=torch.int64, device=device))


def _mix(x: Tensor) -> Tensor:
    """Apply `base.randomness.mix` (SplitMix64: Steele et al. 2014) to int64 numbers, in place."""
    # torch has no uint64, so constants above 2^63 become negative. A shift copies the sign bit, so the copies
    # are masked.
    x.add_(0x9E3779B97F4A7C15 - (1 << 64))
    shifted = torch.empty_like(x)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
        torch.bitwise_right_shift(x, shift, out=shifted)
        x.bitwise_xor_(shifted.bitwise_and_((1 << 64 - shift) - 1))
        if factor is not None:
            x.mul_(factor - (1 << 64))
    return x
