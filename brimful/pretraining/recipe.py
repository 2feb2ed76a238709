"""The recipes of `brimful pretrain`: defaults of optimizer, masking and schedule."""

from collections.abc import Mapping
from typing import Any, Literal

Recipe = Literal["fast", "plain"]
RECIPES: dict[str, dict[str, Any]] = {
    "fast": {
        "optimizer": {"name": "muon", "learning_rate": 2e-3, "muon_learning_rate": 0.02},
        "masking": {"rate": 0.3},
        "schedule": {"warmup": 0.05},
    },
    "plain": {},
}
"""What a recipe changes of the defaults."""

FAST_SIZES = ("tiny", "mini")
"""Where `fast` was measured (docs/training.md)."""


def _is_measured(given: Mapping[str, Any]) -> bool:
    """Whether `fast` is the default with these options."""
    sizes = ("shape.layers", "shape.hidden_size", "model.layers", "model.hidden_size")
    others = ("start_from", "unpacked_batch_size", *sizes)
    return (
        (given.get("model") or "mini") in FAST_SIZES
        and (given.get("architecture") or "modern") == "modern"
        and all(given.get(name) is None for name in others)
    )


def defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of options that are left out.

    Args:
        given: the options that are not, by name: `masking.rate`.
    """
    if given.get("resume") is not None:
        return {}  # the run has its own configuration
    chosen = given.get("recipe")
    recipe = ("fast" if _is_measured(given) else "plain") if chosen is None else str(chosen)
    groups = dict(RECIPES.get(recipe, {}))
    rates = {"optimizer.name", "optimizer.learning_rate", "optimizer.muon_learning_rate"} & given.keys()
    phases = given.get("phases") or ()
    rates |= {"phases" for phase in phases if isinstance(phase, Mapping) and "learning_rate" in phase}
    if given.get("optimizer.name", "muon") != "muon" or (rates and chosen is None):
        groups.pop("optimizer", None)  # its rates belong together
    if "masking.rate" in given:
        groups.pop("masking", None)
    return groups | ({"recipe": recipe} if recipe in RECIPES else {})
