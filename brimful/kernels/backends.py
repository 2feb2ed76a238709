"""Backends of attention for CUDA devices: `varlen` and `flex` (plain: `model.attention.SequenceLayout`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.torch_compile import Compiled
from brimful.base.torch_compile import find_missing_compiler as compiler_lacks
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class VarlenLayout(Layout):
    """`varlen`: FlashAttention over offsets.

    Attributes:
        offsets: int32 (S + 1,) on the device; empty sequences are allowed.
        max_length: fixed for a phase of a run, since another value builds new kernels.
    """

    offsets: Tensor
    max_length: int

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cuda" or torch.version.hip is not None:
            return "a CUDA device"
        if torch.cuda.get_device_capability(device) < (8, 0):
            return "a CUDA device of compute capability 8.0 or newer"
        return None if dtype in HALF else "float16 or bfloat16"

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Iterable[int | None] = ()) -> "VarlenLayout":
        return cls(batch.offsets, batch.max_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        from torch.nn.attention import SDPBackend, sdpa_kernel, varlen

        head_dim = q.shape[-1]
        missing = -head_dim % 8  # kernels need a multiple of 8; zeros change neither scores nor output
        if missing:
            q, k, v = (F.pad(tensor, (0, missing)) for tensor in (q, k, v))
        reach = -1 if window is None else window // 2
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # torch 2.15 prefers cuDNN's kernel, which is slower
            out: Any = varlen.varlen_attn(
                q,
                k,
                v,
                self.offsets,
                self.offsets,
                self.max_length,
                self.max_length,
                scale=head_dim**-0.5,
                window_size=(reach, reach),
            )
        return out[..., :head_dim] if missing else out


@dataclass(frozen=True)
class FlexLayout(Layout):
    """`flex`: FlexAttention with a block mask of sequences, one mask for each window in use.

    Attributes:
        offsets: int32 (S + 1,) on the device.
        sequence: int32 (T,), the sequence of each token.
        options: of the kernels.
        masks: the block masks so far, by window.
    """

    offsets: Tensor
    sequence: Tensor
    options: dict[str, Any] | None = None
    masks: dict[int | None, Any] = field(default_factory=dict)

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        # Where it is not compiled, it computes the scores of all pairs of tokens in the row.
        return compiler_lacks(device) if device.type == "cuda" else "a CUDA device"

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Iterable[int | None] = ()) -> "FlexLayout":
        offsets = batch.offsets.clone()  # a later layout moves there, and the batch keeps its own
        layout = cls(offsets, batch.sequence_of_token.int(), _flex_options(offsets.device))
        for window in windows:
            layout._mask(window)
        return layout

    def moved_to(self, earlier: Layout | None) -> Layout:
        if not (isinstance(earlier, FlexLayout) and earlier._shapes() == self._shapes()):
            return self
        torch._foreach_copy_(earlier._tensors(), self._tensors())
        return earlier

    def _tensors(self) -> list[Tensor]:
        parts = [self.offsets, self.sequence]
        for window in sorted(self.masks, key=str):
            parts += _parts_of(self.masks[window])
        return parts

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for tensor in self._tensors()]

    def _mask(self, window: int | None) -> Any:
        if window not in self.masks:
            sequence = self.sequence

            def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                same = sequence[i] == sequence[j]
                return same if window is None else same & ((i - j).abs() <= window // 2)

            self.masks[window] = _block_mask(self.offsets, sequence, window, visible)
        return self.masks[window]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
        # In a compiled step it is part of the step's graph. On the CPU, for tests alone, it has no backward.
        alone = q.is_cuda and not torch.compiler.is_compiling()
        attention: Any = _compiled_flex_attention() if alone else flex_attention
        mask = self._mask(window)
        return attention(q, k, v, block_mask=mask, kernel_options=self.options)[0].transpose(0, 1)


@cache
def _compiled_flex_attention() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return Compiled(flex_attention, "FlexAttention")


def _flex_options(device: torch.device) -> dict[str, Any] | None:
    """Smaller tiles for devices with little shared memory, such as a T4; the usual ones do not fit there."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (7, 5):
        return None
    return {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 32, "fwd_num_stages": 1}


BLOCK = 128
"""Tokens of a block of FlexAttention's masks: its default."""


def _block_mask(offsets: Tensor, sequence: Tensor, window: int | None, visible: Callable[..., Tensor]) -> Any:
    """The block mask of sequences that lie one after the other, from their offsets.

    The keys that a block of queries sees are contiguous: from the first token of its first query's sequence
    to the last token of its last query's sequence, at most the window away. So are the blocks of keys that
    all of its queries see as a whole. The work is (T / 128)^2 numbers, where `create_block_mask` evaluates
    T^2 pairs and waits for the device. The mask is symmetric: the blocks of queries that see a block of keys
    are the same numbers.
    """
    from torch.nn.attention.flex_attention import BlockMask

    T = sequence.numel()
    count = -(-T // BLOCK)
    reach = T if window is None else window // 2
    block = torch.arange(count, device=sequence.device)
    first, last = block * BLOCK, (block * BLOCK + BLOCK - 1).clamp(max=T - 1)
    of_first, of_last = sequence[first], sequence[last]
    begins = torch.maximum(offsets[of_first], first - reach) // BLOCK
    ends = (torch.minimum(offsets[of_last + 1] - 1, last + reach)) // BLOCK + 1
    # Whole blocks of one sequence, whose farthest pair is within the window; none for blocks of several.
    whole_begins = torch.maximum(-(-offsets[of_first] // BLOCK), -(-(last - reach) // BLOCK))
    whole_ends = torch.minimum(offsets[of_last + 1] // BLOCK, (first + reach + 1) // BLOCK)
    alone = (of_first == of_last) & (first + BLOCK <= T)
    whole_begins = torch.where(alone, whole_begins, begins)
    whole_ends = torch.where(alone, torch.maximum(whole_ends, whole_begins), begins)

    around = _Blocks.between(begins, whole_begins, whole_ends, ends, count)
    whole = _Blocks.between(whole_begins, whole_ends, whole_ends, whole_ends, count)
    return BlockMask((T, T), *around, *whole, *around, *whole, (BLOCK, BLOCK), visible)


class _Blocks(NamedTuple):
    """For each block of queries, how many blocks of keys it sees, and which: int32, as BlockMask has them."""

    number: Tensor
    indices: Tensor

    @classmethod
    def between(cls, a: Tensor, b: Tensor, c: Tensor, d: Tensor, count: int) -> "_Blocks":
        """The blocks from a to b and from c to d, without b and d, of `count` in all."""
        place = torch.arange(count, device=a.device)[None, :]
        jump = torch.where(place < (b - a)[:, None], 0, (c - b)[:, None])
        indices = (a[:, None] + place + jump).clamp(max=count - 1)
        return cls((b - a + d - c).int()[None, None], indices.int()[None, None].contiguous())


def _parts_of(mask: Any) -> list[Tensor]:
    """The tensors of a block mask that `_block_mask` made."""
    return [mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices]


BACKENDS: dict[str, type[Layout]] = {"varlen": VarlenLayout, "flex": FlexLayout}
"""In the order of preference."""
