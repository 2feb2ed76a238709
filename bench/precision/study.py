"""Arms, runs and tables of the study of loss scalers: a toy encoder learns masked tokens of noisy chains."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.common.study import Run
from bench.precision.scalers import ConstantScale, Hysteresis, TorchScaler
from brimful.base.config import config_hash
from brimful.data.batch import PackedBatch, pack
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import EncoderConfig
from brimful.optim.lamb import Lamb
from brimful.precision.narrow import NarrowWeights
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import watch_modules

SHARE = 2.0**-13
"""What each loss is multiplied by: a micro-batch's share of a global mean that is divided up front. The
optimizer's epsilon is too, so that updates differ from those of the whole loss only by rounding."""
SHOCK = 256.0
WINDOW = 25
"""The first and the final loss are means over this many updates."""
WARM_UP = 0.1
LENGTH, TOKENS, FOLLOWS = 16, 31, 0.9
MARGIN = 0.05
"""A run has stalled if its final loss is within this proportion of its first loss."""
LOW, GOOD, HIGH = 0, 24, 36
"""Exponents of first scales: too small, good, too large."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Arms = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """A run.

    Attributes:
        exponent: of the first scale, a power of two.
        interval: ALS's period, GradScaler's growth interval, the hysteresis's window.
        shock: updates in the middle whose loss is 256 times as large.
    """

    seed: int
    updates: int
    rows: int
    format: Literal["fp32", "bf16", "fp16"] = "fp16"
    scaler: Literal["constant", "GradScaler", "hysteresis", "ALS"] = "constant"
    exponent: int = 0
    interval: int = 1
    shock: int = 0

    @property
    def name(self) -> str:
        """Another one for other settings."""
        return f"chains-{config_hash(asdict(self))}"

    @property
    def shocked(self) -> tuple[int, int]:
        """The first update of the shock, and the first after it."""
        start = (self.updates - self.shock) // 2
        return start, start + self.shock

    def new_scaler(self) -> Any:
        """The scaler that the trial names."""
        scale = 2.0**self.exponent
        if self.scaler == "GradScaler":
            return TorchScaler(scale, growth_interval=self.interval)
        if self.scaler == "hysteresis":
            return Hysteresis(scale, window=self.interval)
        return (
            ConstantScale(scale) if self.scaler == "constant" else AutomaticLossScaler(scale, self.interval)
        )


class MaskedLM(nn.Module):
    """Brimful's own encoder and head, 2 layers of width 64, and the mean loss of masked tokens in float32."""

    def __init__(self) -> None:
        super().__init__()
        shape = {"hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 128, "max_length": LENGTH}
        self.encoder = Encoder(EncoderConfig(vocabulary_size=TOKENS + 1, initializer_range=0.07, **shape))
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


def rate(update: int, updates: int) -> float:
    """The learning rate as a share of its peak: a straight line up to it, and one down to zero."""
    rise = WARM_UP * updates
    return min((update + 1) / rise, (updates - update) / (updates - rise), 1.0)


def outcome(start: float, final: float | None) -> str:
    """learned, stalled or diverged. A run whose weights ended infinite or NaN has no final loss: None."""
    if final is None or not math.isfinite(final) or final > (1 + MARGIN) * start:
        return "diverged"
    return "learned" if final < (1 - MARGIN) * start else "stalled"


def train(trial: Trial) -> Run:
    """What a trial gives: its settings, the trace of its scale (exponents), losses, and counts."""
    torch.manual_seed(trial.seed)
    generator = torch.Generator().manual_seed(trial.seed)
    model, batches = MaskedLM().to(DTYPES.get(trial.format, torch.float32)), chains(trial.rows, generator)
    parameters = list(model.parameters())
    lamb = Lamb(parameters, lr=0.03, betas=(0.9, 0.999), eps=1e-6 * SHARE, weight_decay=0.01)
    optimizer = NarrowWeights(lamb, seed=trial.seed)
    peak = optimizer.param_groups[0]["lr"]
    if trial.scaler == "ALS":
        watch_modules(model)
    scaler = trial.new_scaler()
    first, last = trial.shocked
    trace, losses, zeros, skipped = [], [], [], []
    overflows = clipped = nan = made = 0
    finite = True
    for update in range(trial.updates):
        optimizer.param_groups[0]["lr"] = peak * rate(update, trial.updates)
        model.zero_grad()
        loss = model(next(batches))
        trace.append(round(math.log2(scaler.get_scale())))
        losses.append(loss.item())
        scaler.scale(loss * (SHARE * (SHOCK if first <= update < last else 1.0))).backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        total = sum(gradient.numel() for gradient in gradients)
        zeros.append(1 - sum(int(gradient.count_nonzero()) for gradient in gradients) / total)
        overflow = any(not torch.isfinite(gradient).all() for gradient in gradients)
        scaler.step(optimizer)
        scaler.update()
        before, made = made, max((int(state["step"]) for state in optimizer.state.values()), default=0)
        if made == before:
            skipped.append(update)
        if trial.scaler == "ALS":  # what it watches is finite by now
            found = scaler.metrics()
            clipped, nan = clipped + int(found["clipped"]), nan + int(found["nan"])
            overflow |= found["clipped"] + found["nan"] > 0
        overflows += overflow
        finite = all(torch.isfinite(parameter).all() for parameter in parameters)
        if not finite:
            break
    start, final = statistics.fmean(losses[:WINDOW]), statistics.fmean(losses[-WINDOW:]) if finite else None
    counts = {"overflows": overflows, "clipped": clipped, "nan": nan, "zeros": statistics.fmean(zeros)}
    ended = {"outcome": outcome(start, final), "start": start, "final": final, "ended": len(losses)}
    return {**asdict(trial), **ended, "skipped": skipped, **counts, "trace": trace}


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        rows: sequences of a batch.
        exponents: the constant scales that are tried.
        interval: updates after which GradScaler and the hysteresis try a larger scale. They also run with
            their defaults of thousands of updates, for which the runs are too short.
        period: ALS's longer one.
        shock: updates.
    """

    seeds: tuple[int, ...]
    updates: int
    rows: int
    exponents: tuple[int, ...]
    interval: int
    period: int
    shock: int


FULL = Size((0, 1, 2, 3, 4), 300, 16, (-2, 0, 2, 4, 16, 24, 26, 28, 30, 32, 36), 50, 10, 10)
QUICK = Size((0,), 8, 2, (0, 24, 60), 4, 2, 2)


def arms_of(study: str, size: Size) -> Arms:
    """What a study compares: window, start, shock or formats."""

    def als(exponent: int, period: int = 1) -> dict[str, Any]:
        return {"scaler": "ALS", "exponent": exponent, "interval": period}

    def peers(exponent: int) -> Arms:
        return {
            f"{scaler} 2^{exponent}, interval {every}": {
                "scaler": scaler,
                "exponent": exponent,
                "interval": every,
            }
            for scaler, default in (("GradScaler", 2000), ("hysteresis", 1000))
            for every in (default, size.interval)
        }

    arms: Arms = {"fp32": {"format": "fp32"}}
    if study == "window":
        return arms | {f"constant 2^{exponent}": {"exponent": exponent} for exponent in size.exponents}
    if study == "formats":
        arms |= {"bf16": {"format": "bf16"}, "bf16 with ALS": {"format": "bf16", **als(LOW)}}
        return arms | {"fp16": {}, "fp16 with ALS": als(LOW)}
    if study == "start":
        default = "GradScaler 2^16, interval 2000"
        arms[default] = {"scaler": "GradScaler", "exponent": 16, "interval": 2000}
        own = [(exponent, period) for exponent in (LOW, HIGH) for period in (1, size.period)]
        return arms | peers(HIGH) | {f"ALS 2^{e}, period {period}": als(e, period) for e, period in own}
    arms |= {f"constant 2^{exponent}": {"exponent": exponent} for exponent in (GOOD, GOOD - 8)}
    arms |= peers(GOOD) | {f"ALS 2^{GOOD}, period {p}": als(GOOD, p) for p in (1, size.period)}
    long = size.shock * size.period
    arms = {name: {**arm, "shock": size.shock} for name, arm in arms.items()}
    arms[f"fp32, {long} updates"] = {"format": "fp32", "shock": long}
    arms[f"ALS 2^{GOOD}, period {size.period}, {long} updates"] = als(GOOD, size.period) | {"shock": long}
    return arms


def trials(study: str, size: Size) -> list[tuple[str, Trial]]:
    """A study's arms and runs. Seeds take turns over all arms, which share them."""
    return [
        (arm, Trial(seed, size.updates, size.rows, **settings))
        for seed in size.seeds
        for arm, settings in arms_of(study, size).items()
    ]
