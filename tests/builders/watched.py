"""What the tests of watched gradients share: models that are not the project's, and a count of their own."""

import torch
from torch import nn

from brimful.precision.watching import take_counts

CPU = torch.device("cpu")
LARGEST = 65504.0


def histogram(tensors, edge=2.0**13):
    """(to the edge, above it): counted in float64."""
    sizes = torch.cat([tensor.detach().double().abs().flatten() for tensor in tensors])
    lower = int((sizes <= edge).sum())
    return lower, sizes.numel() - lower


def counted():
    """(to the edge, above it) of what was counted since the last call."""
    lower, *above = take_counts(CPU).tolist()
    return int(lower), int(sum(above))


class Step(nn.Module):
    """One of everything whose gradients differ in kind: embedding, linear, LayerNorm, bias."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, tokens):
        return self.out(self.norm(self.table(tokens)))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6 * 36, 4)
    )
