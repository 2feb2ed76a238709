"""How long a device computes on a micro-batch: by its data sheet, or from a measured rate.

By the data sheet, each kind of kernel takes its arithmetic or its bytes at a share of the sheet's rate, one
after another. It is a short form of bench/gpu's prediction (docs/performance.md), which sums over recorded
kernels; tests compare the two. Bytes between products are counted for each token and layer, in units of the
hidden size H and the feed-forward width I.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from brimful.estimates.assumptions import AssumeConfig
from brimful.estimates.memory import Trained
from brimful.nn.flops import Shape, entries_after_attention, matrix_entries, step_flops
from brimful.nn.layers import EncoderConfig
from brimful.optim.build import OptimizerConfig
from brimful.precision.policy import Precision
from brimful.train.config import TrainerConfig
from brimful.train.data_sheets import Sheet

TILE = 128
_KERNELS = {"modern": 47, "bert": 70, "prenorm": 70}
"""For each layer, forward, backward and step."""
_OPTIMIZER_BYTES = {"adamw": 33, "lamb": 45, "muon": 33}
"""Read and written for each parameter: zeroing, norm, clipping and step."""
_SCORE_BYTES = 10
"""Beside the decoder's products, for each score of the cross-entropy."""
_WEIGHT_BYTES = 14
"""For each parameter and pass: its copy in 16 bits, its gradient."""


@dataclass(frozen=True)
class Work:
    """A micro-batch.

    Attributes:
        lengths: of its real sequences.
        slots: tokens, filler included.
        predictions: that the decoder scores, unused slots included.
        predicted: real ones.
        scored: as of a `Shape`.
    """

    lengths: tuple[int, ...]
    slots: int
    predictions: int
    predicted: int
    scored: int | None = None

    @property
    def tokens(self) -> int:
        """Real ones."""
        return sum(self.lengths)

    def times(self, count: float) -> "Work":
        """As much work as `count` such micro-batches in one, of about the same sequences."""
        whole, rest = divmod(round(count * len(self.lengths)), len(self.lengths))
        return Work(
            self.lengths * whole + self.lengths[:rest],
            round(self.slots * count),
            round(self.predictions * count),
            round(self.predicted * count),
            self.scored,
        )

    def model_flops(self, config: EncoderConfig) -> int:
        """Flops that the model needs, as a run counts them for its MFU."""
        kept = self.predicted if self.predictions else None
        return step_flops(config, Shape(self.lengths, self.predicted, kept=kept, scored=self.scored))


def visited(lengths: Sequence[int], reach: int | None, rows: int, columns: int) -> int:
    """Tiles of `rows` queries x `columns` keys that attention visits, each sequence alone, for one head."""
    sizes, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    total = 0
    for length, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        starts = np.arange(0, length, rows)
        first = np.zeros_like(starts) if reach is None else np.maximum(0, starts - reach) // columns
        last = np.full_like(starts, length) if reach is None else np.minimum(length, starts + rows + reach)
        total += count * int((-(-last // columns) - first).sum())
    return total


def pass_seconds(
    work: Work,
    config: EncoderConfig,
    model: Trained,
    trainer: TrainerConfig,
    precision: Precision,
    sheet: Sheet,
    assume: AssumeConfig,
    *,
    compiled: bool,
) -> dict[str, float]:
    """Seconds of forward and backward over a micro-batch on one GPU, by kind of kernel.

    Args:
        trainer: its `residual` is resolved.
        precision: one that the sheet has.
    """
    peak = sheet.peak(precision)
    assert peak is not None
    again = 4 / 3 if trainer.recompute == "layers" else 1.0
    if assume.mfu is not None:
        return {"all": again * work.model_flops(config) / (assume.mfu * peak)}
    bandwidth = assume.bandwidth_share * sheet.bandwidth
    hidden, inner = config.hidden_size, config.intermediate_size
    layers, head = matrix_entries(config, work.scored)
    unfinished = max(0, work.slots - work.predictions) if work.predictions else 0
    skipped = entries_after_attention(config) * unfinished
    products = 6 * (again * (layers * work.slots - skipped) + head * work.predictions)
    attention = {
        reach: visited(work.lengths, reach, TILE, TILE) * TILE**2
        for reach in {_reach(config, layer) for layer in range(config.layers)}
    }
    pairs = sum(attention[_reach(config, layer)] for layer in range(config.layers)) * hidden
    forwards = 2 if trainer.recompute == "layers" else 1
    wide = 0 if trainer.residual == "bf16" else 1
    if config.modern:
        in_hidden, in_inner = 44.6 + 16 * wide, 16
    else:
        in_hidden, in_inner = 67 + 38 * wide, 12
    moved = (in_hidden * hidden + in_inner * inner) * work.slots * config.layers
    # Half of a layer's bytes in units of H lie after its attention.
    moved -= (in_hidden / 2 * hidden + in_inner * inner) * unfinished
    if precision == "fp32":
        moved *= 2
    moved = again * moved + 25 * hidden * work.slots
    scores = work.predictions * (work.scored or config.vocabulary_size)
    launches = _KERNELS[config.architecture] * config.layers + 40
    if not compiled:
        moved, launches = assume.uncompiled_traffic * moved, 10 * launches
    return {
        "products": products / (assume.product_share * peak),
        "attention": pairs
        * (4 * forwards / (assume.attention_forward * peak) + 10 / (assume.attention_backward * peak)),
        "elementwise": (moved + _WEIGHT_BYTES * model.parameters) / bandwidth,
        "cross-entropy": _SCORE_BYTES * scores / bandwidth,
        "launches": 1e-6 * assume.launch_us * launches,
    }


def _reach(config: EncoderConfig, layer: int) -> int | None:
    return None if config.is_global(layer) else config.local_attention // 2


def optimizer_seconds(
    model: Trained,
    optimizer: OptimizerConfig,
    trainer: TrainerConfig,
    precision: Precision,
    sheet: Sheet,
    assume: AssumeConfig,
) -> float:
    """Seconds of the optimizers' step on a GPU, the norm of the gradient included."""
    seconds = _OPTIMIZER_BYTES[optimizer.name] * model.parameters / (assume.bandwidth_share * sheet.bandwidth)
    if optimizer.name == "muon":
        peak = sheet.peak(precision) or sheet.flops
        seconds += muon_flops(model) / (assume.product_share * peak)
    return seconds


def muon_flops(model: Trained) -> int:
    """Flops of the Newton-Schulz iterations of one step (optim/muon.py)."""
    total = 0
    for name, blocks in model.matrices.items():
        rows, columns = model.shapes[name][0] // blocks, model.shapes[name][1]
        total += blocks * 30 * min(rows, columns) ** 2 * max(rows, columns)
    return total


def without_head(work: Work) -> Work:
    """The same sequences without a decoder, as in fine-tuning."""
    return replace(work, predictions=0, predicted=0)
