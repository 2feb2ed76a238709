"""What the precision bench runs: five questions, their arms, sizes and seeds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.precision.run import Trial

Arms = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        rows: sequences or images of a batch.
        exponents: the constant scales that are tried.
        interval: after which GradScaler and the hysteresis try a larger scale, beside their defaults of
            thousands of updates, which the runs are too short for.
        period: ALS's longer one.
        shock: updates.
    """

    seeds: tuple[int, ...]
    updates: int
    rows: Mapping[str, int]
    exponents: tuple[int, ...]
    interval: int
    period: int
    shock: int


FULL = Size(
    seeds=(0, 1, 2, 3, 4),
    updates=300,
    rows={"chains": 16, "images": 32},
    exponents=(-2, 0, 2, 4, 16, 24, 26, 28, 30, 32, 36),
    interval=50,
    period=10,
    shock=10,
)
QUICK = Size(
    seeds=(0,),
    updates=8,
    rows={"chains": 2, "images": 4},
    exponents=(0, 24, 60),
    interval=4,
    period=2,
    shock=2,
)

LOW, GOOD, HIGH = 0, 24, 36
"""Exponents of first scales: too small, good, too large."""
FP32 = {"fp32": {"format": "fp32"}}


def als(exponent: int, period: int = 1) -> dict[str, Any]:
    return {"scaler": "ALS", "exponent": exponent, "interval": period}


def peer(scaler: str, exponent: int, interval: int) -> dict[str, Any]:
    return {"scaler": scaler, "exponent": exponent, "interval": interval}


def peers(exponent: int, size: Size) -> Arms:
    """GradScaler and the hysteresis from one scale, with their own interval and a short one."""
    return {
        f"{scaler} 2^{exponent}, interval {interval}": peer(scaler, exponent, interval)
        for scaler, default in (("GradScaler", 2000), ("hysteresis", 1000))
        for interval in (default, size.interval)
    }


def window(size: Size) -> Arms:
    """Constant scales."""
    return FP32 | {f"constant 2^{exponent}": {"exponent": exponent} for exponent in size.exponents}


def start(size: Size) -> Arms:
    """Where a wrong first scale leads."""
    own = {
        f"ALS 2^{exponent}, period {period}": als(exponent, period)
        for exponent in (LOW, HIGH)
        for period in (1, size.period)
    }
    default = {"GradScaler 2^16, interval 2000": peer("GradScaler", 16, 2000)}
    return FP32 | default | peers(HIGH, size) | own


def shock(size: Size) -> Arms:
    """Losses 256 times as large for a while, from a good scale; a long while for the long period too."""
    brief, long = {"shock": size.shock}, {"shock": size.shock * size.period}
    arms: Arms = {
        "fp32": {"format": "fp32", **brief},
        f"fp32, {long['shock']} updates": {"format": "fp32", **long},
        f"constant 2^{GOOD}": {"exponent": GOOD, **brief},
        f"constant 2^{GOOD - 8}": {"exponent": GOOD - 8, **brief},
    }
    arms |= {name: {**arm, **brief} for name, arm in peers(GOOD, size).items()}
    name = f"ALS 2^{GOOD}, period"
    return arms | {
        f"{name} 1": als(GOOD) | brief,
        f"{name} {size.period}": als(GOOD, size.period) | brief,
        f"{name} {size.period}, {long['shock']} updates": als(GOOD, size.period) | long,
    }


def formats(size: Size) -> Arms:
    """Where ALS has something to give."""
    return FP32 | {
        "bf16": {"format": "bf16"},
        "bf16 with ALS": {"format": "bf16", **als(LOW)},
        "fp16": {},
        "fp16 with ALS": als(LOW),
    }


def convolution(size: Size) -> Arms:
    """Another model and optimizer, with float16 weights and with autocast."""
    arms = {
        "constant 2^0": {},
        "GradScaler 2^16, interval 2000": peer("GradScaler", 16, 2000),
        f"GradScaler 2^{HIGH}, interval {size.interval}": peer("GradScaler", HIGH, size.interval),
        "ALS 2^0": als(LOW),
        f"ALS 2^{HIGH}": als(HIGH),
    }
    return FP32 | {
        f"{kind}: {name}": {**arm, "format": kind}
        for kind in ("fp16", "fp16 autocast")
        for name, arm in arms.items()
    }


STUDIES = {
    "window": window,
    "start": start,
    "shock": shock,
    "formats": formats,
    "convolution": convolution,
}


def trials(study: str, size: Size) -> list[tuple[str, Trial]]:
    """A study's arms and runs. Seeds take turns over all arms, which share them."""
    problem = "images" if study == "convolution" else "chains"
    return [
        (arm, Trial(problem, seed, size.updates, size.rows[problem], **settings))  # type: ignore[arg-type]
        for seed in size.seeds
        for arm, settings in STUDIES[study](size).items()
    ]
