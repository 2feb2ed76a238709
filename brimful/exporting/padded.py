"""The model on padded input, as ONNX runtimes expect it; for export alone."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.hf.reading import TextReading
from brimful.hf.tensors import Head
from brimful.model.attention import Layout
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead
from brimful.model.shape import TextPooling


@dataclass(frozen=True)
class DenseLayout(Layout):
    """Padded input, (B, L) tokens laid out flat as T = B * L. Only for tracing a model.

    Attributes:
        real: bool (B, L), True where there is a token.
    """

    real: Tensor

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        return None

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Iterable[int | None] = ()) -> "DenseLayout":
        raise TypeError("DenseLayout is made from a mask, not from a packed batch")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        B, L = self.real.shape
        heads, head_dim = q.shape[-2:]
        q, k, v = (tensor.view(B, L, heads, head_dim).transpose(1, 2) for tensor in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(q, window))
        return out.transpose(1, 2).reshape(B * L, heads, head_dim)

    def mask(self, q: Tensor, window: int | None) -> Tensor:
        """The mask of scaled_dot_product_attention, broadcast to (B, heads, L, L)."""
        place = torch.arange(self.real.shape[1], device=q.device)
        distance = (place[:, None] - place).abs()
        visible = self.real[:, None, None, :]
        if window is not None:
            visible = visible & (distance <= window // 2)
        return visible | (distance == 0)  # so that padding, which sees nothing else, stays finite


class PaddedModel(nn.Module):
    """An encoder and its head, if any, over (B, L) tokens with a mask; the weights are shared.

    `torch.onnx.export(..., dynamo=True)` traces it with dynamic B and L.
    """

    def __init__(
        self, encoder: Encoder, head: Head | None = None, reading: TextReading | None = None
    ) -> None:
        """reading: without a head, what makes a vector of each text; None gives hidden states."""
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.reading = reading

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Hidden states (B, L, hidden), or vectors of texts (B, hidden) with a reading, or the head's logits:
        (B, L, scores), (B, classes) of a SequenceHead.

        Args:
            input_ids, attention_mask, token_type_ids: integers (B, L); tokens are on the left. bert and
                prenorm alone read types; by default types are 0.
        """
        B, L = input_ids.shape
        positions = torch.arange(L, dtype=torch.int32, device=input_ids.device).repeat(B)
        batch = PackedBatch(
            tokens=input_ids.reshape(-1),
            positions=positions,
            segments=torch.zeros_like(positions) if token_type_ids is None else token_type_ids.reshape(-1),
            offsets=positions,  # never read: the layout is dense
            lengths=(),
            real_sequences=0,
            max_length=0,
        )
        real = attention_mask.bool()
        hidden = self.encoder(batch, DenseLayout(real))
        if isinstance(self.head, SequenceHead):
            return self.head.classify(_pooled(hidden.view(B, L, -1), real, self.head.pooling))
        if self.head is None and self.reading is not None:
            vectors = _pooled(hidden.view(B, L, -1), real, self.reading.pooling)
            return F.normalize(vectors, dim=-1) if self.reading.unit else vectors
        return (hidden if self.head is None else self.head(hidden)).view(B, L, -1)


def _pooled(hidden: Tensor, real: Tensor, pooling: TextPooling) -> Tensor:
    """hidden (B, L, hidden), real (B, L) -> (B, hidden)."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~real[:, :, None], torch.finfo(hidden.dtype).min).amax(1)
    weights = real[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)
