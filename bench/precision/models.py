"""The two toy problems of the precision bench: masked tokens of noisy chains, and patterns in noise."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brimful.data.batch import PackedBatch, pack
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import EncoderConfig

LENGTH, TOKENS = 16, 31
FOLLOWS = 0.9
CLASSES, SIDE, PATTERN = 8, 12, 5


class MaskedLM(nn.Module):
    """Brimful's own encoder and head, 2 layers of width 64, and the mean loss of masked tokens in float32."""

    def __init__(self) -> None:
        super().__init__()
        config = EncoderConfig(
            vocabulary_size=TOKENS + 1,
            hidden_size=64,
            layers=2,
            heads=2,
            intermediate_size=128,
            max_length=LENGTH,
            initializer_range=0.07,
        )
        self.encoder = Encoder(config)
        self.head = MaskedLMHead(self.encoder)

    def forward(self, batch: PackedBatch) -> Tensor:
        assert batch.mlm_positions is not None
        logits = self.head(self.encoder(batch), batch.mlm_positions)
        return F.cross_entropy(logits.float(), batch.mlm_labels)


def chains(rows: int, generator: torch.Generator) -> Iterator[PackedBatch]:
    """Batches of sequences in which a token mostly decides the next one; a quarter is masked.

    Which token follows which is drawn first. Without the neighbours the loss is ln 31 = 3.43.
    """
    next_token = torch.randperm(TOKENS, generator=generator)
    while True:
        sequences = torch.randint(TOKENS, (rows, LENGTH), generator=generator)
        follows = torch.rand(rows, LENGTH, generator=generator) < FOLLOWS
        for t in range(1, LENGTH):
            after = next_token[sequences[:, t - 1]]
            sequences[:, t] = torch.where(follows[:, t], after, sequences[:, t])
        tokens = sequences.flatten()
        masked = torch.randperm(tokens.numel(), generator=generator)[: tokens.numel() // 4]
        labels = tokens[masked]
        tokens[masked] = TOKENS
        batch = pack(list(sequences.numpy()), max_length=LENGTH, pad=0)
        yield replace(batch, mlm_positions=masked, mlm_labels=labels)


class Convolutional(nn.Module):
    """Two convolutions with group norms, the mean over the image, and classes; the mean loss in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, PATTERN, padding=2),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(32, CLASSES),
        )

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.scores(images).float(), labels)

    def scores(self, images: Tensor) -> Tensor:
        """Images float32 (N, 1, side, side) -> scores of the classes (N, classes)."""
        return self.layers(images.to(self.layers[0].weight.dtype))

    @torch.no_grad()
    def error(self, batch: tuple[Tensor, Tensor]) -> float:
        """The share of images that it takes for something else."""
        images, labels = batch
        return (self.scores(images).argmax(1) != labels).float().mean().item()


def images(rows: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of images float32 (rows, 1, side, side) and classes (rows,): one of 8 patterns in noise.

    The patterns are drawn first, and then for each image where its pattern is.
    """
    patterns = torch.randn(CLASSES, PATTERN, PATTERN, generator=generator)
    while True:
        labels = torch.randint(CLASSES, (rows,), generator=generator)
        corners = torch.randint(SIDE - PATTERN + 1, (rows, 2), generator=generator).tolist()
        batch = 0.7 * torch.randn(rows, 1, SIDE, SIDE, generator=generator)
        for image, label, (top, left) in zip(batch, labels, corners, strict=True):
            image[0, top : top + PATTERN, left : left + PATTERN] += patterns[label]
        yield batch, labels
