"""Aliases and protocols that modules of several folders share. It imports no other module of the package."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

Values = dict[str, Any]
Facts = Mapping[str, Any]
Numbers = dict[str, float]
"""Mappings by name: of values (a JSON object, keyword arguments), of values only to read, and of metrics."""
Cursor = Values
"""The state of a stream of updates, in JSON values."""
IGNORED = -100
"""The label of everything that is in no loss and no metric."""
Direction = Literal["highest", "lowest"]
"""Which of two values of a metric is better."""
PrimaryMetric = tuple[str, Direction]
"""The name of the metric by which checkpoints and learning rates are compared, and its direction."""

Compile = Literal["auto"] | bool
"""Whether a step is compiled. auto: on CUDA, if Triton and a C compiler are installed."""
Rounding = Literal["stochastic", "kahan", "master", "nearest"]
"""How 16-bit parameters are rounded."""
Precision = Literal["auto", "fp32", "bf16", "fp16"]
"""The number format of a run."""
InferencePrecision = Literal["auto", "fp32", "bf16", "fp16", "int8"]
"""int8: the layers' products, where calibration has found how to round their inputs; else bf16."""
Residual = Literal["auto", "fp32", "bf16"]
"""The format of the residual stream."""
MIN_SCALE, MAX_SCALE = 2.0**-16, 2.0**40
"""The default bounds of a loss scale."""
SpikePolicy = Literal["stop", "skip"]
"""What happens at a loss spike."""
LossMean = Literal["tokens", "sequences"]
"""What a loss is a mean over."""
Step = int | Literal["best"]
"""A checkpoint of a run: after this many updates, or of the best evaluation."""


class Advance(Protocol):
    """Report that `steps` more are done.

    Args:
        note: is shown below the bar.
        limit: the most seconds that are left, where that may be sooner than the last step.
    """

    def __call__(self, steps: int = 1, note: str = "", limit: float = math.inf) -> None: ...
