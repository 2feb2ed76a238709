"""Rotary positions in Triton, in place, which `torch.compile` cannot do: it would also copy the values.

Without Triton this module can be imported, but `rotate` cannot be called.
"""

from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate in place each pair (x[..., i], x[..., i + head_dim / 2]) by its token's angle.

    Args:
        x: (T, N, heads, head_dim), contiguous but for the first dimension.
        cosine, sine: (T, 1, head_dim / 2), contiguous.
    """
    T, parts, heads, head_dim = x.shape
    half = head_dim // 2
    # Triton's tensors have powers of 2 as sizes; masks leave out what is beyond.
    rows, columns = triton.next_power_of_2(parts * heads), triton.next_power_of_2(half)
    _rotate[(T,)](x, x, cosine, sine, x.stride(0), parts * heads, half, rows, columns)


if triton is not None:

    @triton.jit
    def _rotate(
        source, target, cosine, sine, stride, vectors, half, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):
        """A program rotates the vectors of one token; `vectors` of `half` pairs, padded to powers of 2."""
        token = tl.program_id(0).to(tl.int64)  # offsets of large batches do not fit 32 bits
        row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
        inside = (row < vectors) & (column < half)
        place = token * stride + row * 2 * half + column  # (ROWS, COLUMNS): the first number of each pair
        angle = token * half + column
        c = tl.load(cosine + angle, mask=column < half, other=0.0)
        s = tl.load(sine + angle, mask=column < half, other=0.0)
        a = tl.load(source + place, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(source + place + half, mask=inside, other=0.0).to(tl.float32)
        # Both numbers of a pair have been read, so they can be written over.
        tl.store(target + place, a * c - b * s, mask=inside)
        tl.store(target + place + half, b * c + a * s, mask=inside)
