"""From tuned settings to a record: targets, Brimful's shortest time to one, and the alternated runs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.common.study import paired, spread
from bench.speedrun.runs import SEED, Run, Runs, Settings
from bench.speedrun.side import OURS
from bench.speedrun.sides import AT_EQUAL_TIME, IDEAS, without
from bench.speedrun.track import TARGETS
from brimful.config import config_hash
from brimful.console import say

GOAL = 8.0
"""The ratio with which the search for Brimful's shortest time begins."""
SHORTER, LONGER, MARGIN = 0.75, 1.4, 1.1
TRIES = 6
OF_A_RUN = (
    "side",
    "seed",
    "began",
    "commit",
    "code",
    "changed_files",
    "processor",
    "versions",
    "asked_seconds",
    "cores_of_others",
    "seconds",
    "update_seconds",
    "loss",
)
"""What targets and leave-one-outs keep of each run."""


def targets(
    runs: Runs, tuned: Mapping[str, Settings], seeds: Sequence[int], names: Sequence[str] = TARGETS
) -> list[dict[str, Any]]:
    """For each of these targets its `loss`, what the best rival reaches in its seconds, and that `rival`.

    Args:
        tuned: the settings of each rival.
    """
    found, contest = [], config_hash([dict(tuned), list(seeds)])
    for name in names:
        seconds = runs.track.seconds[TARGETS.index(name)]
        made = [
            runs.run(rival, settings, seconds, seed, contest=contest)
            for rival, settings in tuned.items()
            for seed in seeds
        ]
        found.append(target_of(name, made))
        say(f"target {name}: {found[-1]['loss']:.3f}, by {found[-1]['rival']} in {seconds:g} s")
    return found


def target_of(title: str, made: Sequence[Run]) -> dict[str, Any]:
    """The target that these runs of rivals set, all asked for the same seconds."""
    kept = [{name: run[name] for name in OF_A_RUN} for run in made]
    losses = {}
    for rival in dict.fromkeys(run["side"] for run in made):
        reached = [run["loss"] for run in made if run["side"] == rival]
        losses[rival] = {"mean": statistics.fmean(reached), "deviation": _finite(spread(reached)[1])}
    best = min(losses, key=lambda rival: losses[rival]["mean"])
    return {
        "name": title,
        "seconds": made[0]["asked_seconds"],
        "loss": losses[best]["mean"],
        "rival": best,
        "losses": losses,
        "runs": kept,
    }


def shortest(runs: Runs, settings: Settings, target: Mapping[str, Any]) -> list[dict[str, float]]:
    """Trials of Brimful that bracket its shortest time to a target: from the goal on to shorter times if it
    is reached there, to longer ones if it is not."""
    seconds, tried = target["seconds"] / GOAL, []
    if runs.track.quick:
        seconds = target["seconds"]
    while len(tried) < (1 if runs.track.quick else TRIES) and seconds <= target["seconds"]:
        run = runs.run(OURS, settings, seconds, SEED)
        reached = run["loss"] <= target["loss"]
        say(f"{OURS}, {seconds:.0f} s: loss {run['loss']:.3f}, target {target['loss']:.3f}")
        before = tried[-1]["reached"] if tried else reached
        tried.append({"seconds": seconds, "loss": run["loss"], "reached": reached})
        if reached != before:
            break
        seconds *= SHORTER if reached else LONGER
    return tried


def our_seconds(tried: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> float:
    """What Brimful gets in the record: a little more than its shortest time, as every seed must reach it."""
    reached = [one["seconds"] for one in tried if one["reached"]]
    return min(target["seconds"], MARGIN * min(reached)) if reached else target["seconds"]


def alternate(runs: Runs, sides: Mapping[str, tuple[Settings, float]], seeds: Sequence[int]) -> list[Run]:
    """The runs of a record: each side with one seed, then with the next the other way round.

    They belong together: with other seconds, settings or seeds, all are made anew.

    Args:
        sides: the settings of each side, and the seconds that it gets.
    """
    made, contest = [], config_hash([dict(sides), list(seeds)])
    for turn, seed in enumerate(seeds):
        for side in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            settings, seconds = sides[side]
            run = runs.run(side, settings, seconds, seed, contest=contest)
            say(f"{side}, seed {seed}: loss {run['loss']:.3f} after {run['seconds']:.0f} s")
            made.append({"turn": turn, **run})
    return made


def compared(made: Sequence[Run], target: Mapping[str, Any]) -> dict[str, Any]:
    """What the runs of a record say: seconds, tokens and flops of both sides, and their ratios.

    A rival that misses the target counts with all its seconds, which favours it. Brimful has reached the
    target if every seed has.
    """
    sides = {
        side: sorted(
            (run for run in made if (run["side"] == OURS) == (side == "ours")), key=lambda r: r["seed"]
        )
        for side in ("ours", "rival")
    }
    found: dict[str, Any] = {
        "reached": all(run["loss"] <= target["loss"] for run in sides["ours"]),
    }
    for side, each in sides.items():
        found[side] = {
            name: {"mean": statistics.fmean(values), "deviation": _finite(spread(values)[1])}
            for name in ("seconds", "tokens", "flops", "loss")
            if (values := [float(run[name]) for run in each])
        }
    for name in ("seconds", "tokens", "flops"):
        ratios = [b[name] / a[name] for a, b in zip(sides["ours"], sides["rival"], strict=True)]
        found[f"{name}_ratio"] = {"mean": statistics.fmean(ratios), "deviation": _finite(spread(ratios)[1])}
    return found


def leave_out(
    runs: Runs, settings: Settings, seconds: float, seeds: Sequence[int], ideas: Sequence[str] = tuple(IDEAS)
) -> dict[str, Any]:
    """What each idea contributes: how much the loss rises without it after the same updates, paired over
    seeds, and how many times as long they take. Losses are as exact on a noisy machine; times are not. Ideas
    of AT_EQUAL_TIME are left out for the same seconds, beside trainings with all ideas that end by the clock
    too; those that the settings do not have are passed over.

    Args:
        seconds: of a training with all ideas; they decide the number of updates.

    Returns:
        `whole`, the trainings with all ideas; `by_the_clock`, the same where an idea is left out for the same
        seconds; and `without`, for each idea its `rise`, the `standard_error` of it, `longer`, and its
        trainings.
    """
    updates = runs.updates_in(OURS, settings, seconds)
    arms = {idea: without(settings, idea) for idea in ideas}
    arms = {idea: arm for idea, arm in arms.items() if _given(arm) != _given(settings)}
    made: dict[str, list[Run]] = {idea: [] for idea in arms}
    numbers = {idea: None if idea in AT_EQUAL_TIME else updates for idea in arms}
    wholes: dict[int | None, list[Run]] = {number: [] for number in (updates, *numbers.values())}
    for seed in seeds:  # all arms with one seed, then with the next: so a slow hour meets all of them
        for number, each in wholes.items():
            each.append(runs.run(OURS, settings, seconds, seed, updates=number))
        for idea, changed in arms.items():
            made[idea].append(runs.run(OURS, changed, seconds, seed, updates=numbers[idea]))
    found = []
    for idea, less in made.items():
        whole = wholes[numbers[idea]]
        rise, error = paired([run["loss"] for run in less], [run["loss"] for run in whole])
        longer = statistics.fmean(a["seconds"] / b["seconds"] for a, b in zip(less, whole, strict=True))
        say(f"without {idea}: {rise:+.3f}, {longer:.2f} times as long")
        row = {"idea": idea, "rise": rise, "standard_error": _finite(error), "longer": longer}
        found.append({**row, "runs": _without_points(less)})
    by_the_clock = _without_points(wholes.get(None, []))
    return {"whole": _without_points(wholes[updates]), "by_the_clock": by_the_clock, "without": found}


def _given(settings: Settings) -> Settings:
    return {name: value for name, value in settings.items() if value is not None}


def _without_points(made: Sequence[Run]) -> list[Run]:
    return [{name: run[name] for name in (*OF_A_RUN, "updates", "tokens")} for run in made]


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value
