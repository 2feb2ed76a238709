"""Records: one JSON file each, refused if what it says does not follow from the runs that it holds."""

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.common.study import Run, spread
from bench.speedrun.runs import OURS, SEED, ended
from bench.speedrun.search import TRIALS
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_object

FORMAT = 5
SEEDS = 3
TUNED = {0, 1, 2, SEED}  # seeds with which settings were tuned, by hand or by a search
QUIET = NEAR = 0.05  # cores of others during a run, and how far its seconds may be from those asked for
STEADY = 1.15  # how many times as long a side's updates may take in one run as in another
SOON = 900.0  # seconds between the two sides of a turn
UNEQUAL = 1.1  # what Brimful's search may spend, as a multiple of a quarter of the rival's


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    deviation = spread(values)[1]
    return {"mean": statistics.fmean(values), "deviation": None if math.isnan(deviation) else deviation}


def compared(made: Sequence[Run], target: float) -> dict[str, Any]:
    """What the runs of a record say: seconds, tokens and flops of both sides, and their ratios.

    The rival counts with all its seconds, even where a seed misses the target. Brimful has reached the target
    if every seed has.
    """
    ordered = sorted(made, key=lambda run: run["seed"])
    ours = [run for run in ordered if run["side"] == OURS]
    theirs = [run for run in ordered if run["side"] != OURS]
    found: dict[str, Any] = {"reached": all(run["loss"] <= target for run in ours)}
    for side, each in (("ours", ours), ("rival", theirs)):
        names = ("seconds", "tokens", "flops", "loss")
        found[side] = {name: _mean([float(run[name]) for run in each]) for name in names}
    for name in ("seconds", "tokens", "flops"):
        found[f"{name}_ratio"] = _mean([b[name] / a[name] for a, b in zip(ours, theirs, strict=True)])
    return found


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of all that a record says, but this."""
    rest = json.loads(json.dumps({name: value for name, value in record.items() if name != "digest"}))
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_record(path: Path) -> dict[str, Any]:
    """A record of this format that nobody has changed and that does not contradict itself."""
    record = read_object(path)
    if record.get("format") != FORMAT or "digest" not in record:
        raise BrimfulError(f"{path} is no record of the speedrun of format {FORMAT}")
    if record["digest"] != digest(record):
        raise BrimfulError(f"{path} was changed after it was measured: its digest differs; measure again")
    if flaw := contradiction(record):
        raise BrimfulError(f"{path} contradicts itself: {flaw}; measure again")
    return record


def contradiction(record: Mapping[str, Any]) -> str | None:
    """What in a record does not follow from its runs; None if all does."""
    runs, target = record["runs"], record["target"]
    tuned = {search["side"]: search["rungs"][-1]["trials"][0]["settings"] for search in record["searches"]}
    for run in runs:
        if any(run[name] != value for name, value in ended(run["points"]).items()):
            return f"{run['side']}, seed {run['seed']}, does not end with its last point"
        if run["settings"] != tuned[run["side"]]:
            return f"{run['side']}, seed {run['seed']}, does not have the settings of its search"
    rivals = [run["loss"] for run in target["runs"] if run["side"] == target["rival"]]
    if target["loss"] != statistics.fmean(rivals) or compared(runs, target["loss"]) != record["result"]:
        return "its target and ratios do not follow from its runs"
    return None


def misses(record: Mapping[str, Any]) -> list[str]:
    """The rules that a record does not meet; empty: it counts."""
    runs, target = record["runs"], record["target"]
    seeds = {run["seed"] for run in runs if run["side"] == OURS}
    turns = list(zip(runs[::2], runs[1::2], strict=False))
    firsts = [first["side"] for first, _ in turns]
    begins = [datetime.fromisoformat(run["began"]) for run in runs]
    later = [(after - before).total_seconds() for before, after in pairwise(begins)]
    pauses = [seconds - run["seconds"] for seconds, run in zip(later, runs, strict=False)]
    searches = {search["side"]: search for search in record["searches"]}
    ours, theirs = searches[OURS], searches[target["rival"]]
    aims = {ours["target_seconds"], theirs["target_seconds"], target["seconds"]}
    share = UNEQUAL * theirs["spent_seconds"] / 4
    machines = {json.dumps([run["processor"], run["versions"]], sort_keys=True) for run in runs}
    turned = [first["seed"] == second["seed"] and first["side"] != second["side"] for first, second in turns]
    budgets = min(ours["trials"], theirs["trials"]) >= TRIALS and ours["spent_seconds"] <= share
    code = {run["code"] for run in runs} if not any(run["changed_files"] for run in runs) else {None}
    rules = [
        ("the track was not run at its full size", record["full"]),
        (f"it needs {SEEDS} seeds, none of 0, 1, 2 and {SEED}", len(seeds) >= SEEDS and not seeds & TUNED),
        ("its sides do not alternate", begins == sorted(begins) and all(turned)),
        ("its sides do not take turns", all(before != after for before, after in pairwise(firsts))),
        (f"over {SOON / 60:.0f} minutes lie in a turn", all(pause <= SOON for pause in pauses[::2])),
        ("a seed does not reach the target", record["result"]["reached"]),
        ("its code changed between runs, or was not committed", len(code) == 1 and None not in code),
        ("it was measured on several processors, or with several versions", len(machines) == 1),
        ("the sides were not tuned for this target with budgets in proportion", len(aims) == 1 and budgets),
        ("a side was tuned on another track", {ours["track"], theirs["track"]} == {record["track"]}),
    ]
    found = [rule for rule, met in rules if not met]
    for run in runs:
        cores, late = run["cores_of_others"], run["seconds"] / run["asked_seconds"] - 1
        if not (abs(cores) <= QUIET and abs(late) <= NEAR):
            found.append(f"{run['side']}, seed {run['seed']}: others had {cores} cores, {late:+.0%} of time")
    for side in dict.fromkeys(run["side"] for run in runs):
        times = [run["update_seconds"] for run in runs if run["side"] == side]
        if (change := max(times) / min(times)) > STEADY:
            found.append(f"the updates of {side} took {change:.2f} times as long in one run as in another")
    return found


def shown(path: Path) -> str:
    """A record as a line: its ratios, or why it does not count or is refused."""
    try:
        record = read_record(path)
    except BrimfulError as error:
        return f"refused: {error}"
    if why := misses(record):
        return f"{path.name}: no record ({'; '.join(why)})"
    result, target = record["result"], record["target"]
    ratios = f"{result['seconds_ratio']['mean']:.2f} times as soon as {target['rival']}"
    tokens = "{mean:.2f} ± {deviation:.2f} times fewer tokens".format(**result["tokens_ratio"])
    where = (
        f"{record['runs'][0]['processor']}, {record['threads']} threads, {record['runs'][0]['commit'][:8]}"
    )
    return f"{record['track']}, {target['name']} ({target['loss']:.3f}): {ratios}, {tokens}; {where}"
