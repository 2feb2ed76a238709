"""Number formats for any PyTorch model, not only Brimful's. Names are imported when first used (PEP 562)."""

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "AutomaticLossScaler": "brimful.precision.scaler",
    "watch": "brimful.precision.watching",
    "watch_modules": "brimful.precision.watching",
    "RunningMean": "brimful.precision.running_mean",
    "rank_factor": "brimful.precision.running_mean",
    "NarrowWeights": "brimful.precision.narrow",
    "round_stochastically": "brimful.precision.rounding",
}

__all__ = [  # noqa: RUF022 (the scaler comes first)
    "AutomaticLossScaler",
    "watch",
    "watch_modules",
    "RunningMean",
    "rank_factor",
    "NarrowWeights",
    "round_stochastically",
]

if TYPE_CHECKING:
    from brimful.precision.narrow import NarrowWeights
    from brimful.precision.rounding import round_stochastically
    from brimful.precision.running_mean import RunningMean, rank_factor
    from brimful.precision.scaler import AutomaticLossScaler
    from brimful.precision.watching import watch, watch_modules


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'brimful.precision' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
