"""Number formats for any PyTorch model, not only Brimful's. Names are imported when first used (PEP 562)."""

from typing import TYPE_CHECKING

from brimful.base.lazy import lazy_names

if TYPE_CHECKING:
    from brimful.precision.narrow import NarrowWeights as NarrowWeights
    from brimful.precision.rounding import round_stochastically as round_stochastically
    from brimful.precision.running_mean import RunningMean as RunningMean
    from brimful.precision.running_mean import rank_factor as rank_factor
    from brimful.precision.scaler import AutomaticLossScaler as AutomaticLossScaler
    from brimful.precision.watching import watch as watch
    from brimful.precision.watching import watch_modules as watch_modules

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "AutomaticLossScaler": "scaler",
        "watch": "watching",
        "watch_modules": "watching",
        "RunningMean": "running_mean",
        "rank_factor": "running_mean",
        "NarrowWeights": "narrow",
        "round_stochastically": "rounding",
    },
)
