"""The one interface of attention, `attend(q, k, v, layout)`, and its plain form.

A layout says which tokens of a flat row see each other. A backend makes it once per batch, outside compiled
code, and every layer uses it. A token sees only tokens of its own sequence; with a window, only those at most
`window // 2` away (`local_attention` of ModernBERT, Warner et al. 2024, section 2.1.2).

    sdpa    anywhere: exact, sequence by sequence, in float64 too; dropout of probabilities
    varlen  torch.nn.attention.varlen: CUDA with compute capability >= 8.0, float16 and bfloat16
    flex    compiled FlexAttention with a mask of sequences: other CUDA devices

The last two are in kernels/backends.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.errors import BrimfulError, require_known
from brimful.data.batch import PackedBatch
from brimful.model.fast_forms import find_fast_form

Windows = Iterable[int | None]
CaptureFunction = Callable[[Tensor, Tensor, Tensor], None]
"""Receives queries, keys and values, each (T, heads, head_dim)."""


class Layout(ABC):
    """Which tokens see each other, in the form that the kernel of one backend needs."""

    drops: ClassVar[bool] = False
    """Whether the backend supports dropout of probabilities."""

    @staticmethod
    @abstractmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        """Return what this backend lacks on `device` with `dtype`; None: it runs there with any batch."""

    @classmethod
    @abstractmethod
    def prepare(cls, batch: PackedBatch, windows: Windows = ()) -> "Layout":
        """Return the layout of a batch, on the device of the batch's tensors.

        Args:
            windows: the windows of the layers, so that their masks exist before a compiled step.
        """

    def moved_to(self, earlier: "Layout | None") -> "Layout":
        """Return this layout at the addresses of an earlier one, which it overwrites: for CUDA graphs.

        Only a layout whose tensors are saved for backward needs it; the others return themselves.
        """
        return self

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        """Compute the module's function `attend`. Dropout is 0 if the backend does not support it."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Layout,
    *,
    window: int | None = None,
    dropout: float = 0.0,
    capture: CaptureFunction | None = None,
) -> Tensor:
    """Return softmax(QK^T / sqrt(head_dim)) V within each sequence of a flat row.

    Args:
        q, k, v: (T, heads, head_dim), one dtype.
        layout: `choose_backend(...).prepare(batch)`.
        window: width of local attention: a token sees tokens at most `window // 2` away. None: its whole
            sequence.
        dropout: the fraction of probabilities that become 0, drawn from torch's generator; the others are
            divided by 1 - dropout. Only the `sdpa` backend supports it.
        capture: receives (q, k, v), from which distillation computes attention scores.

    Returns:
        (T, heads, head_dim), the dtype of q.

    Raises:
        BrimfulError: the layout's backend does not support dropout.
    """
    if dropout and not layout.drops:
        raise BrimfulError("only the attention backend 'sdpa' supports dropout: use it, or set dropout to 0")
    if capture is not None:
        capture(q, k, v)
    return layout.attend(q, k, v, window, dropout)


@dataclass(frozen=True)
class SequenceLayout(Layout):
    """`sdpa`: each sequence by itself, so that packing changes no bit of its result.

    Attributes:
        lengths: int64 (S,) on the CPU, 0 for empty sequences.
    """

    lengths: Tensor
    drops: ClassVar[bool] = True

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        return None

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Windows = ()) -> "SequenceLayout":
        lengths = torch.zeros(batch.offsets.numel() - 1, dtype=torch.int64)
        lengths[: len(batch.lengths)] = torch.tensor(batch.lengths, dtype=torch.int64)
        return cls(lengths)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        fast = find_fast_form("attention", q)
        if fast is not None:
            return fast(q, k, v, self.lengths, window, dropout)
        sizes = self.lengths.tolist()
        outputs = []
        for q_i, k_i, v_i in zip(q.split(sizes), k.split(sizes), v.split(sizes), strict=True):
            outputs.append(attend_sequence(q_i, k_i, v_i, window, dropout))
        return torch.cat(outputs)


def attend_sequence(q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
    """Return the attention of one sequence (Vaswani et al. 2017, equation 1): each (L, heads, head_dim)."""
    scores = torch.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5  # (heads, L, L)
    if window is not None:
        position = torch.arange(len(q), device=q.device)
        is_hidden = (position[:, None] - position).abs() > window // 2  # (L, L), for all heads
        scores = scores.masked_fill(is_hidden, -torch.inf)
    probabilities = F.dropout(scores.softmax(-1), dropout)
    return torch.einsum("hij,jhd->ihd", probabilities, v)


def backends() -> dict[str, type[Layout]]:
    """Return the backends by name, in the order of preference; the last, `sdpa`, runs everywhere."""
    faster = find_fast_form("backends")
    return {**(faster() if faster else {}), "sdpa": SequenceLayout}


def choose_backend(
    device: torch.device | str, dtype: torch.dtype = torch.float32, name: str = "auto"
) -> type[Layout]:
    """Return the fastest backend that runs on `device` with activations of `dtype`, or the backend `name`.

    Args:
        device: the model's device.
        dtype: the dtype of q, k and v; under autocast, autocast's.
        name: "auto" or a key of `backends`.

    Raises:
        BrimfulError: there is no such backend, or it cannot run here; the message says why.
    """
    device = torch.device(device)
    layouts = backends()
    if name == "auto":
        return next(layout for layout in layouts.values() if layout.lacks(device, dtype) is None)
    require_known("attention backend", name, [*layouts, "auto"])
    need = layouts[name].lacks(device, dtype)
    if need is not None:
        raise BrimfulError(f"attention backend {name!r} needs {need}; here: {device}, {dtype}. Use 'auto'")
    return layouts[name]
