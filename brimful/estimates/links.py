"""What each rank sends to others in an update, in bytes, and how long a collective takes.

An all-reduce sends 2 (n - 1) / n of its bytes, an all-gather or a reduce-scatter half of that. With more than
one host, as many bytes leave each host, spread over its network cards: NCCL makes a ring for each card (or
trees, with about the same bytes). So they take the time of the slower of the link within a host and all cards
of a host together.
"""

from dataclasses import dataclass

from brimful.estimates.memory import Trained
from brimful.optim.build import OptimizerConfig
from brimful.precision.policy import DTYPES, Precision
from brimful.train.config import TrainerConfig


@dataclass(frozen=True)
class Traffic:
    """Bytes that each rank sends in an update.

    Attributes:
        hidden: what backward passes may hide: sums of gradients, and layers that FSDP2 gathers ahead.
        last: of these, the gradients of the embedding matrix, which are ready when backward ends.
        after: parameters that travel when the optimizers have stepped.
        collectives: how many there are.
    """

    hidden: float
    last: float
    after: float
    collectives: int

    @property
    def total(self) -> float:
        """Their sum."""
        return self.hidden + self.after


def traffic(
    model: Trained,
    optimizer: OptimizerConfig,
    trainer: TrainerConfig,
    precision: Precision,
    ranks: int,
    micro_batches: int = 1,
) -> Traffic:
    """The traffic of one of `ranks`, each with as many micro-batches in an update."""
    if ranks == 1:
        return Traffic(0.0, 0.0, 0.0, 0)
    others = (ranks - 1) / ranks
    sizes = {name: shape.numel() for name, shape in model.shapes.items()}
    whole = {
        name
        for name in sizes
        if optimizer.name == "lamb" or (optimizer.name == "muon" and name in model.matrices)
    }
    all_, travelling = sum(sizes.values()), sum(sizes[name] for name in whole)
    embedding = sizes["encoder.embedding.weight"]
    if trainer.shard == "model":
        layers = sum(sizes[name] for name in model.in_layers)
        width = DTYPES[precision].itemsize
        gathers = micro_batches * (2 * width * layers + 4 * (all_ - layers))
        exchanged = 3 * 4 * travelling  # gradients and parameters to their owners, parameters back
        return Traffic(
            others * (gathers + 4 * all_),
            others * 4 * (all_ - layers),
            others * exchanged,
            micro_batches * (2 * model.layers + 1) + model.layers + 1,
        )
    width = 4 if trainer.weights == "fp32" and trainer.compression == "none" else 2
    buckets = max(1, round(4 * all_ / (trainer.bucket_mb * 2**20)))
    after, collectives = 0.0, buckets * (1 if trainer.compression == "none" else 2)
    if trainer.shard == "optimizer":
        # A broadcast of what an owner has passes through every rank but the last.
        after = others * 4 * all_
        collectives += 1 + min(len(whole), ranks)
    return Traffic(2 * others * width * all_, 2 * others * width * embedding, after, collectives)


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
