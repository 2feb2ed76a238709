"""Backends of attention for CUDA devices: `varlen` and `flex` (plain: `model.attention.SequenceLayout`)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.torch_compile import Compiled
from brimful.base.torch_compile import find_missing_compiler as compiler_lacks
from brimful.base.types import Values
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout, Windows

HALF_DTYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class VarlenLayout(Layout):
    """`varlen`: FlashAttention (Dao et al. 2022) over offsets.

    Attributes:
        offsets: int32 (S + 1,) on the device; empty sequences are allowed.
        max_length: the same throughout a phase of a run, since each new value builds new kernels.
    """

    offsets: Tensor
    max_length: int

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cuda" or torch.version.hip is not None:
            return "a CUDA device"
        if torch.cuda.get_device_capability(device) < (8, 0):
            return "a CUDA device of compute capability 8.0 or newer"
        return None if dtype in HALF_DTYPES else "float16 or bfloat16"

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Windows = ()) -> "VarlenLayout":
        return cls(batch.offsets, batch.max_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        from torch.nn.attention import SDPBackend, sdpa_kernel, varlen

        head_dim = q.shape[-1]
        padding = -head_dim % 8  # kernels need a multiple of 8; zeros change neither scores nor output
        if padding:
            q, k, v = (F.pad(tensor, (0, padding)) for tensor in (q, k, v))
        reach = -1 if window is None else window // 2
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # torch 2.15 prefers cuDNN's kernel, which is slower
            extent = self.offsets, self.offsets, self.max_length, self.max_length  # of queries and keys
            scale, window_size = head_dim**-0.5, (reach, reach)
            out: Any = varlen.varlen_attn(q, k, v, *extent, scale=scale, window_size=window_size)
        return out[..., :head_dim] if padding else out


@dataclass(frozen=True)
class FlexLayout(Layout):
    """`flex`: FlexAttention with a block mask of sequences, one mask for each window in use.

    Attributes:
        offsets: int32 (S + 1,) on the device.
        sequence: int32 (T,), the sequence of each token.
        options: options of the kernels.
        masks: the block masks that have been made, by window.
    """

    offsets: Tensor
    sequence: Tensor
    options: Values | None = None
    masks: dict[int | None, Any] = field(default_factory=dict)

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        # Without a compiler, FlexAttention would compute the scores of all pairs of tokens in the row.
        return compiler_lacks(device) if device.type == "cuda" else "a CUDA device"

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Windows = ()) -> "FlexLayout":
        # A later layout may be copied into these tensors (`moved_to`), so they are not the batch's own.
        offsets = batch.offsets.clone()
        layout = cls(offsets, batch.sequence_of_token.int(), _flex_options(offsets.device))
        for window in windows:
            layout._block_mask(window)
        return layout

    def moved_to(self, earlier: Layout | None) -> Layout:
        if not (isinstance(earlier, FlexLayout) and earlier._shapes() == self._shapes()):
            return self
        torch._foreach_copy_(earlier._tensors(), self._tensors())
        return earlier

    def _tensors(self) -> list[Tensor]:
        tensors = [self.offsets, self.sequence]
        for window in sorted(self.masks, key=str):  # None has no order
            mask = self.masks[window]
            tensors += [mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices]
        return tensors

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for tensor in self._tensors()]

    def _block_mask(self, window: int | None) -> Any:
        """Return the block mask of a window, made on the first call."""
        if window not in self.masks:
            sequence = self.sequence

            def is_visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                is_same = sequence[i] == sequence[j]
                return is_same if window is None else is_same & ((i - j).abs() <= window // 2)

            self.masks[window] = _make_block_mask(self.offsets, sequence, window, is_visible)
        return self.masks[window]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))  # (1, heads, T, head_dim)
        attention: Any = flex_attention
        # A compiled step includes it in its own graph. On a CPU (in tests only) it has no backward.
        if q.is_cuda and not torch.compiler.is_compiling():
            attention = _compiled_flex_attention()
        out = attention(q, k, v, block_mask=self._block_mask(window), kernel_options=self.options)
        return out[0].transpose(0, 1)


@cache
def _compiled_flex_attention() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return Compiled(flex_attention, "FlexAttention")


def _flex_options(device: torch.device) -> Values | None:
    """Return options for smaller tiles on a T4 (compute capability 7.5), which has little shared memory."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (7, 5):
        return None
    return {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 32, "fwd_num_stages": 1}


BLOCK_TOKENS = 128
"""Tokens of a block of FlexAttention's masks: its default."""


def _make_block_mask(
    offsets: Tensor, sequence: Tensor, window: int | None, is_visible: Callable[..., Tensor]
) -> Any:
    """Return the block mask of sequences that lie one after the other, from their offsets.

    The keys that a block of queries sees are contiguous: from the first token of its first query's sequence
    to the last token of its last query's sequence, at most the window away. So are the blocks of keys that
    all of its queries see entirely. The work is (T / 128)^2 numbers, where `create_block_mask` evaluates
    T^2 pairs and waits for the device. The mask is symmetric: blocks of queries by keys are the same numbers.
    """
    from torch.nn.attention.flex_attention import BlockMask

    T = sequence.numel()
    count = -(-T // BLOCK_TOKENS)
    reach = T if window is None else window // 2
    block = torch.arange(count, device=sequence.device)
    # Of each block of queries, (count,): first and last token, their sequences, the blocks of keys seen.
    first = block * BLOCK_TOKENS
    last = (first + BLOCK_TOKENS - 1).clamp(max=T - 1)
    first_sequence, last_sequence = sequence[first], sequence[last]
    begins = torch.maximum(offsets[first_sequence], first - reach) // BLOCK_TOKENS
    ends = torch.minimum(offsets[last_sequence + 1] - 1, last + reach) // BLOCK_TOKENS + 1
    # Blocks of keys seen as a whole lie in the one sequence of all queries, and within the window of each.
    whole_begins = -(-torch.maximum(offsets[first_sequence], last - reach) // BLOCK_TOKENS)
    whole_ends = torch.minimum(offsets[last_sequence + 1], first + reach + 1) // BLOCK_TOKENS
    has_whole = (first_sequence == last_sequence) & (first + BLOCK_TOKENS <= T)
    whole_begins = torch.where(has_whole, whole_begins, begins)
    whole_ends = torch.where(has_whole, torch.maximum(whole_ends, whole_begins), begins)

    partial = _list_blocks(begins, whole_begins, whole_ends, ends, count)
    whole = _list_blocks(whole_begins, whole_ends, whole_ends, whole_ends, count)
    return BlockMask((T, T), *partial, *whole, *partial, *whole, (BLOCK_TOKENS, BLOCK_TOKENS), is_visible)


def _list_blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return how many of `count` blocks of keys a block of queries sees, and which: [a, b) and [c, d).

    The results are int32 (1, 1, count) and (1, 1, count, count), as BlockMask has them.
    """
    index = torch.arange(count, device=a.device)[None, :]
    gap = torch.where(index < (b - a)[:, None], 0, (c - b)[:, None])
    blocks = (a[:, None] + index + gap).clamp(max=count - 1)
    return (b - a + d - c).int()[None, None], blocks.int()[None, None].contiguous()


BACKENDS: dict[str, type[Layout]] = {"varlen": VarlenLayout, "flex": FlexLayout}
"""The backends of CUDA devices, in the order of preference."""
