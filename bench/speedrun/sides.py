"""The settings of each side: where its search begins, what the search may change, and Brimful's ideas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.speedrun.rival import RIVALS
from bench.speedrun.side import OURS
from bench.speedrun.track import Track
from brimful.errors import BrimfulError, nearest
from brimful.randomness import derive_key, uniform

SIDES = (OURS, *RIVALS)
_OF_RIVALS = [
    {"precision": precision, "compile": compiled}
    for precision in ("fp32", "bf16")
    for compiled in (False, True)
]
VARIANTS: dict[str, list[dict[str, Any]]] = {
    OURS: [{"trainer.compile": compiled} for compiled in (False, True)],
    **dict.fromkeys(RIVALS, _OF_RIVALS),
}
"""Ways to compute the same updates. Pilots choose the fastest before the search."""


def _shape(layers: int, hidden_size: int, heads: int, intermediate_size: int) -> dict[str, int | None]:
    return {
        "shape.layers": layers,
        "shape.hidden_size": hidden_size,
        "shape.heads": heads,
        "shape.intermediate_size": intermediate_size,
    }


PRESET: dict[str, int | None] = dict.fromkeys(_shape(0, 0, 0, 0))
"""The shape of the track's model."""


@dataclass(frozen=True)
class Space:
    """What a search draws from.

    Attributes:
        choices: values of a setting, each as likely as the others.
        ranges: the ends of a setting whose logarithm is drawn uniformly.
        shapes: settings that change together, the smallest shape first. Settings that are drawn have them in
            turn, from the one after the start's on.
    """

    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shapes: Sequence[Mapping[str, Any]] = (PRESET,)

    def draw(self, start: Mapping[str, Any], number: int, key: str) -> list[dict[str, Any]]:
        """`start`, and `number - 1` other settings; the same ones for the same arguments."""
        drawn = [dict(start)]
        for index in range(1, number):
            settings = dict(start)
            for name, values in self.choices.items():
                settings[name] = values[int(_drawn(key, name, index) * len(values))]
            for name, (low, high) in self.ranges.items():
                settings[name] = float(f"{low * (high / low) ** _drawn(key, name, index):.2g}")
            drawn.append(settings | self.shapes[(self._shape(start) + index) % len(self.shapes)])
        return drawn

    def around(self, settings: Mapping[str, Any]) -> "Space":
        """A narrower space: each range from half to twice the setting, the neighbours of each choice and of
        the shape.

        Raises:
            BrimfulError: a setting is not among the choices, or the shape is not among the shapes.
        """
        near = {}
        for name, values in self.choices.items():
            if settings[name] not in values:
                raise BrimfulError(f"{name} is {settings[name]}: choose from {', '.join(map(str, values))}")
            at = list(values).index(settings[name])
            near[name] = _neighbours(values, at)
        ranges = {name: (settings[name] / 2, settings[name] * 2) for name in self.ranges}
        return Space(near, ranges, _neighbours(self.shapes, self._shape(settings)))

    def _shape(self, settings: Mapping[str, Any]) -> int:
        """The number of the settings' shape."""
        if (own := shape_of(settings)) not in self.shapes:
            raise BrimfulError(f"no side of this track has the shape {own}")
        return self.shapes.index(own)


def _drawn(key: str, name: str, index: int) -> float:
    """From 0 to 1, for a setting of one of the settings of a search."""
    return float(uniform(derive_key("speedrun", key, name), [index])[0])  # type: ignore[arg-type]


def _neighbours(values: Sequence[Any], at: int) -> Sequence[Any]:
    return values[max(0, at - 1) : at + 2]


RIVAL_START: dict[str, Any] = {
    "learning_rate": 2.2e-3,
    "batch": 32,
    "mask_rate": 0.3,
    "warmup": 0.06,
    "precision": "fp32",
    "compile": False,
}
"""Where the search for a rival's settings begins: ModernBERT's best in docs/speedrun-trials.md. The target
has its shape in `SMALLER`."""
RIVAL_SPACE = Space(
    choices={"batch": (16, 32, 64, 128), "mask_rate": (0.15, 0.2, 0.3, 0.4)},
    ranges={"learning_rate": (3e-4, 1e-2)},
)


SMALLER: dict[str, tuple[dict[str, int | None], ...]] = {
    "mini": (_shape(2, 128, 4, 512), _shape(2, 192, 6, 768), _shape(3, 256, 4, 768))
}
"""Shapes of no more parameters than a preset, the smallest first: what a rival's search begins with for the
early, the middle and the late target. Brimful has less time, and begins the late one with the second."""
SUITED: tuple[dict[str, Any], ...] = (
    {
        "sampled_softmax": 1024,
        "optimizer.learning_rate": 7e-3,
        "optimizer.muon_learning_rate": 0.03,
    },
    {"optimizer.learning_rate": 5e-3, "optimizer.muon_learning_rate": 0.02},
)
"""What suits the first two of these shapes: trainings of one minute, and of five."""


def shapes(model: str) -> tuple[dict[str, int | None], ...]:
    """What a side may have on a track with this model, the smallest first."""
    return (*SMALLER.get(model, ()), PRESET)


def shape_of(settings: Mapping[str, Any]) -> dict[str, int | None]:
    """The shape among settings, which is the preset where they name none."""
    return {name: settings.get(name) for name in PRESET}


def adapted(settings: Mapping[str, Any], side: str, track: Track) -> dict[str, Any]:
    """Settings of another track, with this track's model, and its preset if no side here has their shape."""
    found = dict(settings)
    if shape_of(settings) not in shapes(track.model):
        found |= PRESET
    if side == OURS:
        found["model"] = track.model
    return found


def our_start(track: Track, target: float | None = None) -> dict[str, Any]:
    """Where the search for Brimful's settings begins: the best of those in docs/speedrun-trials.md.

    Args:
        target: the rivals' seconds for the target; by default of the late one.
    """
    settings = {
        "model": track.model,
        **PRESET,
        "architecture": "modern",
        "packing.max_length": track.max_length,
        "packing.capacity": 512,
        "rows_per_update": 16,
        "masking.rate": 0.3,
        "masking.unit": "words",
        "optimizer.name": "muon",
        "initial.attention": "neighbours",
        "initial.vocabulary": "data",
        "sampled_softmax": 4096,
        "optimizer.learning_rate": 3e-3,
        "optimizer.muon_learning_rate": 0.015,
        "optimizer.weight_decay": 0.1,
        "schedule.shape": "linear",
        "schedule.warmup": 0.05,
    }
    if track.model not in SMALLER:
        return settings
    place = min(_place(target), len(SUITED) - 1)
    return settings | SMALLER[track.model][place] | SUITED[place]


def _place(target: float | None) -> int:
    """The number of the target, or of the one whose seconds are next."""
    return sum(target is None or target > seconds for seconds in Track.seconds[:-1])


OUR_SPACE = Space(
    choices={"rows_per_update": (4, 8, 16, 32), "masking.rate": (0.3, 0.4, 0.5)},
    ranges={"optimizer.learning_rate": (1e-3, 1e-2), "optimizer.muon_learning_rate": (0.008, 0.06)},
)

IDEAS: dict[str, dict[str, Any]] = {
    "heads look at neighbours": {"initial.attention": "random"},
    "vocabulary from the data": {"initial.vocabulary": "random"},
    "Muon for matrices": {"optimizer.name": "adamw"},
    "high mask rate": {"masking.rate": 0.15},
    "whole words": {"masking.unit": "tokens"},
    "sampled softmax": {"sampled_softmax": None},
    "a smaller model": PRESET,
    "modern architecture and its heads": {
        "architecture": "bert",
        "shape.intermediate_size": None,
        "initial.attention": "random",
    },
    "packed rows": {"packing.max_sequences": 1, "packing.capacity": "max_length"},
}
"""Brimful's ideas, each with the settings that switch it off."""
AT_EQUAL_TIME = ("a smaller model",)
"""Ideas that are left out for the same time, not the same updates, after which a larger model is better."""


def without(settings: Mapping[str, Any], idea: str) -> dict[str, Any]:
    """Brimful's settings with one idea switched off."""
    off = dict(IDEAS[idea])
    if off.get("packing.capacity") == "max_length":
        rows = settings["packing.capacity"] // settings["packing.max_length"]
        off["packing.capacity"] = settings["packing.max_length"]
        off["rows_per_update"] = settings["rows_per_update"] * rows
    return {**settings, **off}


def start(side: str, track: Track, target: float | None = None) -> dict[str, Any]:
    """The settings that the search of a side begins with.

    Args:
        target: see `our_start`.

    Raises:
        BrimfulError: there is no such side.
    """
    if side not in SIDES:
        raise BrimfulError(f"unknown side {side!r}: {nearest(side, SIDES)}")
    if side == OURS:
        return our_start(track, target)
    return RIVAL_START | (SMALLER[track.model][_place(target)] if track.model in SMALLER else PRESET)


def space(side: str, track: Track) -> Space:
    """What the search of a side may change."""
    return replace(OUR_SPACE if side == OURS else RIVAL_SPACE, shapes=shapes(track.model))
