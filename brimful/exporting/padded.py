"""The model on padded input, as ONNX runtimes expect it; for export alone."""

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.hf.tensors import Head
from brimful.model.attention import DenseLayout
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead


class PaddedModel(nn.Module):
    """An encoder and its head, if any, over (B, L) tokens with a mask; the weights are shared.

    `torch.onnx.export(..., dynamo=True)` traces it with dynamic B and L.
    """

    def __init__(self, encoder: Encoder, head: Head | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Hidden states (B, L, hidden), or the head's logits: (B, L, scores), (B, classes) of a SequenceHead.

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
            hidden = hidden.view(B, L, -1)
            if self.head.pooling == "first":
                return self.head.classify(hidden[:, 0])
            weights = real[:, :, None].to(hidden.dtype)
            return self.head.classify((hidden * weights).sum(1) / weights.sum(1))
        return (hidden if self.head is None else self.head(hidden)).view(B, L, -1)
