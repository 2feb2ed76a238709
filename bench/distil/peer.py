"""A TinyBERT-style step on padded batches, written plainly from the paper and from what its code does.

    hidden states   Jiao et al. 2020, "TinyBERT", equations 8 and 9, and one matrix for all layers
    scores          equation 7, QK' / sqrt(head size) - 10000 at keys that are padding; at most -100 becomes 0
    means           over all slots of the padded batch, and over all pairs of them; layers are added

Both models return the scores and hidden states of all their layers, as the published code does. Unlike that
code, the teacher has no dropout and no graph.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful import Encoder

MASKED = -10000.0
"""What is added to the scores of keys that are padding."""
LEAST = -100.0
"""Scores up to this become 0 in the loss."""


class PaddedBert(nn.Module):
    """BERT as published (Devlin et al. 2018), without dropout: attention forms all scores."""

    def __init__(self, encoder: Encoder) -> None:
        """Args: encoder: of the architecture bert; its weights are copied."""
        super().__init__()
        config = encoder.config
        self.heads, self.eps = config.heads, config.norm_eps
        hidden, inner = config.hidden_size, config.intermediate_size
        self.words = nn.Embedding(config.vocabulary_size, hidden)
        self.places = nn.Embedding(config.max_length, hidden)
        self.types = nn.Embedding(config.segments, hidden)
        self.norm = nn.LayerNorm(hidden, config.norm_eps)
        names = {"query": (hidden, hidden), "key": (hidden, hidden), "value": (hidden, hidden)}
        names |= {"out": (hidden, hidden), "up": (hidden, inner), "down": (inner, hidden)}
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {name: nn.Linear(*shape) for name, shape in names.items()}
                | {name: nn.LayerNorm(hidden, config.norm_eps) for name in ("out_norm", "down_norm")}
            )
            for _ in range(config.layers)
        )
        weights = encoder.state_dict() | {"embedding.weight": encoder.word_embeddings}
        self.to(encoder.embedding.weight.dtype).load_state_dict(self.named(weights))

    @staticmethod
    def named(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of an Encoder's parameters under the names of this module's."""
        found = {}
        renamed = {"embedding": "words", "position": "places", "segment": "types", "embedding_norm": "norm"}
        renamed_in_layers = {"attention_out": "out", "attention_norm": "out_norm", "mlp_norm": "down_norm"}
        for name, weight in tensors.items():
            first, *rest = name.split(".")
            if first in renamed:
                found[".".join([renamed[first], *rest])] = weight
            elif first == "layers":
                index, module, kind = rest
                modules = [renamed_in_layers.get(module, module)]
                if module == "qkv":
                    modules = ["query", "key", "value"]
                for module, part in zip(modules, weight.chunk(len(modules)), strict=True):
                    found[f"layers.{index}.{module}.{kind}"] = part
        return found

    def forward(self, ids: Tensor, real: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """ids int64 and real bool (B, L) -> scores (B, heads, L, L) of each layer; hidden states (B, L,
        hidden) of the embeddings and of each layer."""
        mask = (1 - real.to(self.words.weight.dtype))[:, None, None] * MASKED
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(place) + self.types(torch.zeros_like(ids)))
        scores, states = [], [x]
        for layer in self.layers:
            q, k, v = (self._split(layer[name](x)) for name in ("query", "key", "value"))
            score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
            seen = (score.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = layer["out_norm"](x + layer["out"](seen))
            x = layer["down_norm"](x + layer["down"](F.gelu(layer["up"](x))))
            scores.append(score)
            states.append(x)
        return scores, states

    def _split(self, x: Tensor) -> Tensor:
        """(B, L, hidden) -> (B, heads, L, head size)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def score_loss(ours: Tensor, theirs: Tensor) -> Tensor:
    """The mean squared difference of two models' scores."""
    ours, theirs = (torch.where(x <= LEAST, torch.zeros_like(x), x) for x in (ours, theirs))
    return F.mse_loss(ours, theirs)


def layer_losses(
    student: PaddedBert, teacher: PaddedBert, project: nn.Module, ids: Tensor, real: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss of the scores and that of the hidden states, each added over the layers: ()."""
    ours, our_states = student(ids, real)
    with torch.no_grad():
        theirs, their_states = teacher(ids, real)
    every = len(theirs) // len(ours)
    scores = [score_loss(x, theirs[(i + 1) * every - 1]) for i, x in enumerate(ours)]
    states = [F.mse_loss(project(x), their_states[i * every]) for i, x in enumerate(our_states)]
    return torch.stack(scores).sum(), torch.stack(states).sum()
