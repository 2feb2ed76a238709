"""What each rank sends to others in an update, in bytes, and how long a collective takes.

An all-reduce sends 2 (n - 1) / n of its bytes, an all-gather or a reduce-scatter half of that. With more than
one host, as many bytes leave each host, spread over its network cards: NCCL makes a ring for each card (or
trees, with about the same bytes). So they take the time of the slower of the link within a host and all cards
of a host together.
"""

from dataclasses import dataclass

from brimful.estimates.memory import Trained
from brimful.train.config import TrainerConfig


@dataclass(frozen=True)
class Traffic:
    """Bytes that each rank sends in an update.

    Attributes:
        hidden: sums of gradients, which backward passes may hide.
        last: of these, the gradients of the embedding matrix, which are ready when backward ends.
        collectives: how many there are.
    """

    hidden: float
    last: float
    collectives: int


def traffic(model: Trained, trainer: TrainerConfig, ranks: int) -> Traffic:
    """The traffic of one of `ranks`."""
    if ranks == 1:
        return Traffic(0.0, 0.0, 0)
    others = (ranks - 1) / ranks
    sizes = {name: shape.numel() for name, shape in model.shapes.items()}
    all_ = sum(sizes.values())
    embedding = sizes["encoder.embedding.weight"]
    width = 4 if trainer.weights == "fp32" and trainer.compression == "none" else 2
    buckets = max(1, round(4 * all_ / (trainer.bucket_mb * 2**20)))
    collectives = buckets * (1 if trainer.compression == "none" else 2)
    return Traffic(2 * others * width * all_, 2 * others * width * embedding, collectives)


@dataclass(frozen=True)
class Links:
    """The links between ranks.

    Attributes:
        within: bytes a second that a rank sends to its host's ranks.
        between: bytes a second that a host sends to others, by all its network cards.
        share: of these that collectives reach.
        latency: seconds of a collective for each doubling of the ranks.
        per_host: ranks of a host.
    """

    within: float
    between: float
    share: float
    latency: float
    per_host: int

    def seconds(self, sent: float, collectives: int, ranks: int) -> float:
        """How long `collectives` take, in which a rank sends `sent` bytes."""
        if ranks == 1 or not sent:
            return 0.0
        slowest = self.within if ranks <= self.per_host else min(self.within, self.between)
        return sent / (self.share * slowest) + collectives * self.latency * (ranks - 1).bit_length()
