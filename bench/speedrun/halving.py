"""Successive halving (Jamieson and Talwalkar, 2016): many settings for a short time, the better for longer.

Each rung takes the same time: half as many trials, each twice as long and with a schedule of its own. Trials
have a seed that no record has, so nothing is chosen by a record's luck.
"""

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from bench.common.processes import processor
from bench.common.study import kept
from bench.speedrun.runs import COMPILES, SEED, Run, Runs, Settings
from bench.speedrun.side import OURS
from bench.speedrun.sides import VARIANTS, Space, space, start
from brimful.console import say
from brimful.errors import BrimfulError

LAST = 2
"""Trials of the last rung."""

TRIALS = 4
"""The fewest of a record's search."""
LONG = 0.5
"""The shortest trial of a rival's search, as a fraction of the target's time. At 0.15, settings of a rival
were chosen while none had left the plateau of the beginning (docs/speedrun-trials.md)."""

SOONER = 4
"""Brimful's search takes a quarter of a rival's, because its trainings are shorter, and its variant is the
fastest in a quarter of the target's time."""

OUTCLASSED = 0.5
"""A rival whose search ends with a loss this much above the best rival's is dropped. With the default budget,
a rival's trials of the last rung have the target's time."""
COMMITTED = Path("bench/results/searches_of_the_speedrun")
"""Searches that took hours, under the names that they have in --work."""


def rungs(trials: int, seconds: float) -> list[tuple[int, float]]:
    """How many trials each rung has, and the seconds of each trial; together `seconds`."""
    sizes = [trials]
    while sizes[-1] > LAST:
        sizes.append(max(LAST, sizes[-1] // 2))
    return [(size, seconds / len(sizes) / size) for size in sizes]


def budget(trials: int, target: float) -> float:
    """The seconds of a rival's search whose shortest trials take `LONG` of the seconds of a target."""
    return len(rungs(trials, 1.0)) * trials * LONG * target


def share(side: str) -> float:
    """The time of a side's search, as a fraction of a rival's."""
    return 1 / SOONER if side == OURS else 1.0


def halve(
    drawn: Sequence[Settings], seconds: float, trial: Callable[[Settings, float], Run], at_once: int = 1
) -> tuple[Settings, list[dict[str, Any]]]:
    """The best of these settings, and the record of each rung.

    Args:
        seconds: of all trials together.
        trial: settings and seconds -> a result with `loss`, or with `error`.
        at_once: trials of a rung that are made at the same time.

    Raises:
        BrimfulError: every trial of a rung failed.
    """
    left, record = list(drawn), []
    for size, each in rungs(len(drawn), seconds):
        chosen = left[:size]
        with ThreadPoolExecutor(at_once) as pool:
            tried = list(zip(chosen, pool.map(trial, chosen, repeat(each)), strict=True))
        tried.sort(key=lambda pair: pair[1].get("loss", math.inf))
        record.append(
            {"seconds": each, "trials": [{"settings": settings, **_brief(run)} for settings, run in tried]}
        )
        if "loss" not in tried[0][1]:
            raise BrimfulError(f"every trial failed; the first one: {tried[0][1]['error']}")
        left = [settings for settings, run in tried if "loss" in run]
    return left[0], record


def loss_of(search: Mapping[str, Any]) -> float:
    """Of the best trial of its last rung."""
    loss: float = search["rungs"][-1]["trials"][0]["loss"]
    return loss


def outclassed(searches: Sequence[Mapping[str, Any]]) -> set[str]:
    """The rivals among these searches' sides that are not worth a run of a record."""
    losses = {search["side"]: loss_of(search) for search in searches if search["side"] != OURS}
    return {side for side, loss in losses.items() if loss > min(losses.values()) + OUTCLASSED}


def _brief(run: Run) -> Run:
    return {name: run[name] for name in ("loss", "seconds", "updates", "tokens", "error") if name in run}


def fastest(runs: Runs, side: str, target: float) -> tuple[Settings, list[dict[str, Any]]]:
    """A side's start, with the variant that makes the most updates in its share of the `target` seconds, its
    start-up included; and what was tried."""
    seconds = target * share(side)
    tried: list[tuple[dict[str, Any], Settings]] = []
    for variant in VARIANTS[side]:
        settings = {**start(side, runs.track, target), **variant}
        row = dict(variant)
        try:
            pace = runs.pace(side, settings)
            left = seconds - pace["start_seconds"]
            row |= {"start_seconds": pace["start_seconds"], "pace": pace["updates_per_second"]}
            row["updates"] = left * pace["updates_per_second"]
        except BrimfulError as error:
            row["error"] = str(error)
        tried.append((row, settings))
    tried.sort(key=lambda pair: -pair[0].get("updates", -math.inf))
    if "error" in tried[0][0]:
        raise BrimfulError(tried[0][0]["error"])
    return tried[0][1], [row for row, _ in tried]


def measure_paces(runs: Runs, side: str, drawn: Sequence[Settings]) -> list[str]:
    """Make the pilots of these settings; the messages of those that fail."""
    failed = []
    for settings in drawn:
        try:
            runs.pace(side, settings)
        except BrimfulError as error:
            failed.append(str(error))
    return failed


@dataclass(frozen=True)
class Plan:
    """What a search tries.

    Attributes:
        begin: the settings that it begins with.
        drawn: the settings of the first rung, `begin` first.
        variants: see `fastest`.
        space: what was drawn from.
    """

    begin: Settings
    drawn: list[Settings]
    variants: list[dict[str, Any]]
    space: Space


def plan(runs: Runs, side: str, trials: int, target: float, around: Settings | None = None) -> Plan:
    """The settings that a search tries. `search` has the same arguments."""
    begin, found = start(side, runs.track, target), space(side, runs.track)
    variants: list[dict[str, Any]] = []
    if not runs.track.quick:
        begin, variants = fastest(runs, side, target)
    if around is not None:
        here = {name: begin[name] for name in VARIANTS[side][0] if name in begin}
        begin, found = {**around, **here}, found.around(around)
    return Plan(begin, found.draw(begin, trials, side), variants, found)


def search(
    runs: Runs,
    side: str,
    trials: int,
    seconds: float,
    target: float,
    around: Settings | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Tune a side: `settings`, and all that was tried.

    Args:
        trials: of the first rung; the start of the side is one of them.
        seconds: of all trials of a rival together, without pilots; Brimful has its share.
        target: the rivals' seconds for the target that the side is tuned for.
        around: search in the neighbourhood of these settings, with the variant that is fastest here.
        device: cuda makes the trials of a rung on a GPU at once, not compiled. Each makes the updates that
            the CPU of the pilots makes in its seconds, with the same micro-batches and number formats. The
            pilots must be there: none is made.
    """
    seconds *= share(side)
    runs = replace(runs, pilots=device == "cpu")
    planned = plan(runs, side, trials, target, around)
    begin = planned.begin
    place = runs.place("searches", side, begin, trials, seconds, target, asdict(planned.space))
    place = place.with_suffix(".json")
    if (COMMITTED / place.name).is_file() and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(COMMITTED / place.name, place)

    def trial(settings: Settings, each: float) -> Run:
        began = time.monotonic()
        try:
            if device == "cpu":
                result = runs.run(side, settings, each, SEED)
            else:
                updates = runs.updates_in(side, settings, each)
                eager = {name: False for name in COMPILES if name in settings}
                there = {**settings, **runs.pace(side, settings)["as_run"], **eager}
                result = runs.run(side, there, each, SEED, updates=updates, device=device)
                result |= {"seconds": each, "updates": updates}
        except BrimfulError as error:  # it has had its time, though it may have ended sooner
            spent = time.monotonic() - began if device == "cpu" else 0.0
            result = {"error": str(error), "seconds": max(each, spent)}
        said = f"loss {result['loss']:.3f}" if "loss" in result else result["error"]
        say(f"{side}, {each:.0f} s: {said} {_changed(settings, begin)}")
        return result

    def make() -> dict[str, Any]:
        at_once = 1 if device == "cpu" else trials
        best, record = halve(planned.drawn, seconds, trial, at_once)
        spent = math.fsum(one["seconds"] for rung in record for one in rung["trials"])
        return {
            "side": side,
            "track": runs.track.name,
            "settings": best,
            "target_seconds": target,
            "trials": trials,
            "seconds": seconds,
            "spent_seconds": spent,
            "device": device,
            "processor": processor() if device == "cpu" else runs.pace(side, begin)["processor"],
            "variants": planned.variants,
            "rungs": record,
        }

    found = kept(place, make)
    if (made_on := found.get("device", "cpu")) != device:
        say(f"{side}: a search made on {made_on} is kept")
    return found


def _changed(settings: Settings, begin: Settings) -> Settings:
    return {name: value for name, value in settings.items() if begin.get(name) != value}
