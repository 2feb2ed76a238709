"""One run of the precision bench: a toy problem, a number format, a loss scaler, and what happened."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bench.precision import models
from bench.precision.measures import outcome
from bench.precision.scalers import ConstantScale, Hysteresis, TorchScaler
from brimful.config import config_hash
from brimful.optim.ema import WeightAverage
from brimful.optim.lamb import Lamb
from brimful.precision import AutomaticLossScaler, NarrowWeights, watch_modules

SHARE = 2.0**-13
"""What each loss is multiplied by: a micro-batch's share of a global mean that is divided up front. The
optimizers' epsilons are too, so that updates differ from those of the whole loss only by rounding."""
SHOCK = 256.0
WINDOW = 25
"""The first and the final loss are means over this many updates."""
WARM_UP = 0.1
AVERAGE_DECAY = 0.98
HELD_OUT = 16
"""Batches."""

Format = Literal["fp32", "bf16", "fp16", "fp16 autocast"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Trial:
    """A run.

    Attributes:
        exponent: of the first scale, a power of two.
        interval: ALS's period, GradScaler's growth interval, the hysteresis's window.
        shock: updates in the middle whose loss is 256 times as large.
    """

    problem: Literal["chains", "images"]
    seed: int
    updates: int
    rows: int
    format: Format = "fp16"
    scaler: Literal["constant", "GradScaler", "hysteresis", "ALS"] = "constant"
    exponent: int = 0
    interval: int = 1
    shock: int = 0

    @property
    def name(self) -> str:
        """Another one for other settings."""
        return f"{self.problem}-{config_hash(asdict(self))}"

    @property
    def shocked(self) -> tuple[int, int]:
        """The first update of the shock, and the first after it."""
        start = (self.updates - self.shock) // 2
        return start, start + self.shock


@dataclass(frozen=True)
class Problem:
    """A model, its batches, and the float32 optimizer that it is trained with, at its peak rate.

    Attributes:
        decays: whether the rate goes down to zero, or stays at its peak and weights are averaged instead.
    """

    model: type[nn.Module]
    batches: Callable[[int, torch.Generator], Iterator[Any]]
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer]
    decays: bool

    def rate(self, update: int, updates: int) -> float:
        """The learning rate as a share of its peak: a straight line up to it, and perhaps one down."""
        rise = WARM_UP * updates
        left = (updates - update) / (updates - rise)
        return min((update + 1) / rise, left if self.decays else 1.0, 1.0)


PROBLEMS = {
    "chains": Problem(
        models.MaskedLM,
        models.chains,
        lambda weights: Lamb(weights, lr=0.03, betas=(0.9, 0.999), eps=1e-6 * SHARE, weight_decay=0.01),
        decays=True,
    ),
    "images": Problem(
        models.Convolutional,
        models.images,
        lambda weights: torch.optim.RMSprop(weights, lr=3e-3, eps=1e-8 * SHARE),
        decays=False,
    ),
}


def make_scaler(trial: Trial) -> Any:
    """The scaler that a trial names."""
    scale, interval = 2.0**trial.exponent, trial.interval
    if trial.scaler == "GradScaler":
        return TorchScaler(scale, growth_interval=interval)
    if trial.scaler == "hysteresis":
        return Hysteresis(scale, window=interval)
    return ConstantScale(scale) if trial.scaler == "constant" else AutomaticLossScaler(scale, interval)


class Numbers:
    """What becomes of gradients: how many are zero, and how many left the range."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.zeros: list[float] = []
        self.overflows = self.clipped = self.nan = 0

    def look(self) -> None:
        """After a backward pass. What was watched is finite by now."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        total = sum(gradient.numel() for gradient in gradients)
        self.zeros.append(1 - sum(int(gradient.count_nonzero()) for gradient in gradients) / total)
        self.overflows += any(not torch.isfinite(gradient).all() for gradient in gradients)

    def read(self, metrics: dict[str, float]) -> None:
        """What ALS found in an update."""
        self.clipped += int(metrics["clipped"])
        self.nan += int(metrics["nan"])
        self.overflows += metrics["clipped"] + metrics["nan"] > 0


def steps_made(optimizer: torch.optim.Optimizer) -> int:
    """How often the weights were changed, as the optimizer's own state has it."""
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def train(trial: Trial) -> dict[str, Any]:
    """What a trial gives: its settings, the trace of its scale (exponents), losses, and counts."""
    torch.manual_seed(trial.seed)
    generator = torch.Generator().manual_seed(trial.seed)
    problem = PROBLEMS[trial.problem]
    model, batches = problem.model(), problem.batches(trial.rows, generator)
    model.to(DTYPES.get(trial.format, torch.float32))
    parameters = list(model.parameters())
    optimizer = problem.optimizer(parameters)
    if trial.format != "fp16 autocast":
        optimizer = NarrowWeights(optimizer, seed=trial.seed)
    peak = optimizer.param_groups[0]["lr"]
    if trial.scaler == "ALS":
        watch_modules(model)
    scaler, numbers = make_scaler(trial), Numbers(parameters)
    average = WeightAverage(dict(model.named_parameters()), AVERAGE_DECAY)
    first, last = trial.shocked
    trace, losses, skipped = [], [], []
    started = time.process_time()
    for update in range(trial.updates):
        optimizer.param_groups[0]["lr"] = peak * problem.rate(update, trial.updates)
        model.zero_grad()
        autocast = trial.format == "fp16 autocast"
        with torch.autocast("cpu", torch.float16) if autocast else nullcontext():
            loss = model(next(batches))
        trace.append(round(math.log2(scaler.get_scale())))
        losses.append(loss.item())
        scaler.scale(loss * (SHARE * (SHOCK if first <= update < last else 1.0))).backward()
        numbers.look()
        before = steps_made(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if steps_made(optimizer) == before:
            skipped.append(update)
        if trial.scaler == "ALS":
            numbers.read(scaler.metrics())
        average.update(update + 1)
        if not all(torch.isfinite(parameter).all() for parameter in parameters):
            break
    finite = all(torch.isfinite(parameter).all() for parameter in parameters)
    start, final = statistics.fmean(losses[:WINDOW]), statistics.fmean(losses[-WINDOW:]) if finite else None
    found = {
        **asdict(trial),
        "outcome": outcome(start, final),
        "start": start,
        "final": final,
        "ended": len(losses),
        "skipped": skipped,
        "overflows": int(numbers.overflows),
        "clipped": numbers.clipped,
        "nan": numbers.nan,
        "zeros": statistics.fmean(numbers.zeros),
        "shock_zeros": statistics.fmean(shocked) if (shocked := numbers.zeros[first:last]) else None,
        "trace": trace,
        "losses": [round(statistics.fmean(losses[i : i + 10]), 4) for i in range(0, len(losses), 10)],
        "cpu_seconds": round(time.process_time() - started, 2),
    }
    if isinstance(model, models.Convolutional) and finite:
        tests = [next(batches) for _ in range(HELD_OUT)]
        found["error"] = statistics.fmean(model.error(batch) for batch in tests)
        with average.swapped():
            found["averaged_error"] = statistics.fmean(model.error(batch) for batch in tests)
    return found
