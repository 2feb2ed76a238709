"""The settings of both sides: where a search begins, what it may change, and the best of its trials."""

import math
from collections.abc import Sequence
from typing import Any

from bench.speedrun.runs import OURS, SEED, Runs, Settings
from bench.speedrun.text import Track
from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, draw_uniform

TRIALS = 4  # the fewest of a record's search
SHARE = {True: 1 / 8, False: 1 / 2}  # the seconds of a trial of Brimful and of the rival, of the target's
NAMES = ("shape.layers", "shape.hidden_size", "shape.heads", "shape.intermediate_size")
PRESET: Settings = dict.fromkeys(NAMES)  # the shape of the track's model
SMALLER = tuple(
    dict(zip(NAMES, shape, strict=True)) for shape in ((2, 128, 4, 512), (2, 192, 6, 768), (3, 256, 4, 768))
)
RANGES = {  # of settings whose logarithm is drawn uniformly
    OURS: {"optimizer.learning_rate": (1e-3, 1e-2), "optimizer.muon_learning_rate": (0.008, 0.06)},
    "modernbert": {"learning_rate": (3e-4, 1e-2)},
}
CHOICES: dict[str, dict[str, Sequence[Any]]] = {
    OURS: {"rows_per_update": (4, 8, 16, 32), "masking.rate": (0.3, 0.4, 0.5)},
    "modernbert": {"batch": (16, 32, 64, 128), "mask_rate": (0.15, 0.2, 0.3, 0.4)},
}


def shapes_of(track: Track) -> tuple[Settings, ...]:
    """What a side may have on a track, the smallest first; none has more parameters than the model."""
    return (*SMALLER, PRESET) if track.model == "mini" else (PRESET,)


def start(side: str, track: Track, target: float) -> Settings:
    """The settings that a search begins with: the best known (bench/results/speedrun.md). The later the
    target, the larger the shape; Brimful has less time, and begins the late one with the second."""
    place = sum(target > seconds for seconds in Track.seconds[:-1])
    if side != OURS:
        settings = {"learning_rate": 2.2e-3, "batch": 32, "mask_rate": 0.3, "warmup": 0.06}
        settings |= {"precision": "bf16", "compile": bool(track.pages)}
        return settings | shapes_of(track)[: place + 1][-1]
    early = place == 0 and track.model == "mini"
    settings = {"model": track.model, "architecture": "modern", "rows_per_update": 16}
    settings |= {"packing.max_length": track.max_length, "packing.capacity": 512}
    settings |= {"masking.rate": 0.3, "masking.unit": "words"}
    settings |= {"initial.attention": "neighbours", "initial.vocabulary": "data", "trainer.compile": False}
    settings |= {"optimizer.learning_rate": 7e-3 if early else 5e-3, "optimizer.weight_decay": 0.1}
    settings |= {"optimizer.muon_learning_rate": 0.03 if early else 0.02, "optimizer.name": "muon"}
    settings |= {"schedule.shape": "linear", "schedule.warmup": 0.05}
    return settings | shapes_of(track)[: min(place, 1) + 1][-1]


def draw(side: str, begin: Settings, shapes: Sequence[Settings], number: int) -> list[Settings]:
    """`begin`, and `number - 1` other settings, the same ones each time; shapes take turns."""
    place = next(i for i, shape in enumerate(shapes) if shape.items() <= begin.items())
    drawn = [dict(begin)]
    for index in range(1, number):

        def chance(name: str, index: int = index) -> float:
            return float(draw_uniform(derive_key("speedrun", side, name), [index])[0])  # type: ignore[arg-type]

        settings = begin | shapes[(place + index) % len(shapes)]
        for name, values in CHOICES[side].items():
            settings[name] = values[int(chance(name) * len(values))]
        for name, (low, high) in RANGES[side].items():
            settings[name] = float(f"{low * (high / low) ** chance(name):.2g}")
        drawn.append(settings)
    return drawn


def search(runs: Runs, side: str, trials: int, target: float) -> dict[str, Any]:
    """Tune a side: `settings`, the best of `trials`, and all that was tried, the best first. A trial that
    fails counts with its whole time."""
    seconds = target * SHARE[side == OURS]
    tried = []
    for settings in draw(side, start(side, runs.track, target), shapes_of(runs.track), trials):
        trial: dict[str, Any] = {"settings": settings, "seconds": seconds}
        try:
            made = runs.run(side, settings, seconds, SEED)
            trial |= {name: made[name] for name in ("loss", "seconds", "updates", "tokens")}
        except BrimfulError as error:
            trial["error"] = str(error)
        say(f"{side}, {seconds:.0f} s: {trial.get('loss', trial.get('error'))} {settings}")
        tried.append(trial)
    tried.sort(key=lambda trial: trial.get("loss", math.inf))
    if "loss" not in tried[0]:
        raise BrimfulError(f"every trial failed; the first one: {tried[0]['error']}")
    facts = {"side": side, "track": runs.track.name, "target_seconds": target, "trials": trials}
    spent = math.fsum(trial["seconds"] for trial in tried)
    rungs = [{"seconds": seconds, "trials": tried}]
    return {**facts, "settings": tried[0]["settings"], "spent_seconds": spent, "rungs": rungs}
