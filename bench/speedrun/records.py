"""Records: one JSON file each, refused if what it says does not follow from the runs that it holds."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from bench.common.study import table
from bench.speedrun.contest import compared, target_of
from bench.speedrun.halving import TRIALS, budget, outclassed, share
from bench.speedrun.points import seconds_per_update
from bench.speedrun.rival import RIVALS
from bench.speedrun.runs import SEED, fault_of
from bench.speedrun.side import OURS
from bench.speedrun.sides import PRESET, shape_of, shapes
from bench.speedrun.track import TARGETS
from brimful.errors import BrimfulError
from brimful.storage import read_object, write_json

FORMAT = 5
SEEDS = 3
UNEQUAL = 1.1
"""The most that Brimful's search may spend, as a multiple of its share of a rival's."""
STEADY = 1.15
"""How many times as long a side's updates may take in one run as in another: else the machine has changed."""
TUNED = {0, 1, 2, SEED}
"""Seeds with which settings were tuned, by hand or by a search."""
SOON = 900.0
"""The most seconds between the two sides of a turn."""
FOLDER = Path("bench/results")


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of all that a record says, but this."""
    said = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def write_record(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record with its digest."""
    value = json.loads(json.dumps({"format": FORMAT, **record}))
    value["digest"] = digest(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, value)
    return value


def read_record_file(path: Path) -> dict[str, Any]:
    """A record that nobody has changed.

    Raises:
        BrimfulError: it is no record of this format, or it was changed, or contradicts itself.
    """
    record = read_object(path)
    if "digest" not in record:
        raise BrimfulError(f"{path} is not a record of the speedrun")
    if record.get("format") != FORMAT:
        raise BrimfulError(f"{path} has format {record.get('format')}, and this version reads {FORMAT}")
    if record["digest"] != digest(record):
        raise BrimfulError(f"{path} was changed after it was measured: its digest differs; measure again")
    if flaw := contradiction(record):
        raise BrimfulError(f"{path} contradicts itself: {flaw}; measure again")
    return record


def contradiction(record: Mapping[str, Any]) -> str | None:
    """What in a record does not follow from its runs; None if all does."""
    runs, target = record["runs"], record["target"]
    for run in runs:
        last = run["points"][-1]
        own = [run[name] for name in ("seconds", "updates", "tokens", "flops", "loss")]
        if own != [last[name] for name in ("seconds", "updates", "tokens", "flops", "loss")]:
            return f"{run['side']}, seed {run['seed']}, does not end with its last point"
        if run["update_seconds"] != seconds_per_update(run["points"]):
            return f"the updates of {run['side']}, seed {run['seed']}, took another time than its points say"
        clock = [point["seconds"] for point in run["points"]]
        if clock != sorted(clock):
            return f"the clock of {run['side']}, seed {run['seed']}, goes backwards"
    if target_of(target["name"], target["runs"]) != target:
        return "its target does not follow from the rivals' runs"
    if any(run["side"] != OURS and run["side"] != target["rival"] for run in runs):
        return f"a side is neither {OURS} nor the rival that sets the target"
    if any(run["side"] != OURS and run["asked_seconds"] != target["seconds"] for run in runs):
        return "a rival was asked for other seconds than the target's"
    for search in record["searches"]:
        tried = [trial for rung in search["rungs"] for trial in rung["trials"]]
        if search["spent_seconds"] != math.fsum(trial["seconds"] for trial in tried):
            return f"the trials of {search['side']} took other seconds than its search says"
        if search["trials"] != len(search["rungs"][0]["trials"]):
            return f"{search['side']} has another number of trials than its search says"
        if search["settings"] != search["rungs"][-1]["trials"][0]["settings"]:
            return f"the settings of {search['side']} are not those of its best trial"
    searches = {search["side"]: search for search in record["searches"]}
    for run in runs:
        search = searches.get(run["side"], {"settings": {}, "track": record["track"]})
        of = dict if search["track"] == record["track"] else _for_any_size
        if of(run["settings"]) != of(search["settings"]):
            return f"{run['side']}, seed {run['seed']}, does not have the settings of its search"
    if compared(runs, target) != record["result"]:
        return "its ratios do not follow from its runs"
    return None


def _for_any_size(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the model and its shape."""
    return {name: value for name, value in settings.items() if name != "model" and name not in PRESET}


def misses(record: Mapping[str, Any]) -> list[str]:
    """The rules that a record does not meet; empty: it counts."""
    runs, target = record["runs"], record["target"]
    seeds = {run["seed"] for run in runs if run["side"] == OURS}
    searches = {search["side"]: search for search in record["searches"]}
    found = []
    if not record["full"]:
        found.append("the track was not run at its full size")
    if len(seeds) < SEEDS:
        found.append(f"{len(seeds)} seeds, not {SEEDS}")
    if seeds & TUNED:
        found.append(f"the sides were tuned with seed {min(seeds & TUNED)}")
    if not _alternates(runs):
        found.append("its sides do not alternate")
    if any(_seconds_between(*pair) > SOON for pair in zip(runs[::2], runs[1::2], strict=False)):
        found.append(f"more than {SOON / 60:.0f} minutes lie between the sides of a turn")
    if not record["result"]["reached"]:
        found.append("a seed does not reach the target")
    if record["parameters"]["ours"] > record["parameters"]["allowed"]:
        found.append("the model has more parameters than the rival's")
    measured = [*runs, *target["runs"]]
    allowed = shapes(record["track"].partition("-")[2])
    for side in dict.fromkeys(run["side"] for run in runs if shape_of(run["settings"]) not in allowed):
        found.append(f"{side} has a shape that the others could not choose")
    code = {run["code"] for run in measured}
    if None in code or len(code) > 1 or any(run["changed_files"] for run in measured):
        found.append("its code changed between runs, or was not committed")
    if len({json.dumps([run["processor"], run["versions"]], sort_keys=True) for run in measured}) > 1:
        found.append("it was measured on several processors, or with several versions")
    for run in measured:
        if fault := fault_of(run):
            found.append(f"{run['side']}, seed {run['seed']}: {fault}")
    for side in dict.fromkeys(run["side"] for run in measured):
        times = [run["update_seconds"] for run in measured if run["side"] == side]
        if max(times) > STEADY * min(times):
            change = max(times) / min(times)
            found.append(f"the updates of {side} took {change:.2f} times as long in one run as in another")
    processors = {run["processor"] for run in measured}
    for side, search in searches.items():
        if search.get("device", "cpu") != "cpu" and search["processor"] not in processors:
            found.append(f"{side} was tuned on a GPU with the paces of another processor")
    if any(search["track"] != record["track"] for search in searches.values()):
        found.append("the sides were tuned on another track")
    if absent := set(RIVALS) - set(target["losses"]) - outclassed(record["searches"]):
        found.append(f"without {', '.join(sorted(absent))}")
    if {(run["side"], run["seed"]) for run in target["runs"]} != set(product(target["losses"], seeds)):
        found.append("the target has other seeds")
    if not {OURS, *RIVALS} <= set(searches) or not _as_tuned(searches, target):
        found.append(
            f"the sides were not tuned for this target with budgets in proportion, {TRIALS} or more trials, a"
            f" rival's of half the target's time or more, Brimful's {share(OURS):g} of that"
        )
    return found


def _alternates(runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether both sides run with a seed before the next one, which has them the other way round."""
    if [run["began"] for run in runs] != sorted(run["began"] for run in runs):
        return False
    turns = [(runs[i], runs[i + 1]) for i in range(0, len(runs) - 1, 2)]
    firsts = [first["side"] for first, _ in turns]
    return (
        len(runs) % 2 == 0
        and all(first["seed"] == second["seed"] for first, second in turns)
        and all(first["side"] != second["side"] for first, second in turns)
        and all(before != after for before, after in pairwise(firsts))
    )


def _seconds_between(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """From the end of a run to the beginning of the next."""
    begins = [datetime.fromisoformat(run["began"]) for run in (first, second)]
    return (begins[1] - begins[0]).total_seconds() - float(first["seconds"])


def _as_tuned(searches: Mapping[str, Mapping[str, Any]], target: Mapping[str, Any]) -> bool:
    """Whether the sides had budgets in proportion, large enough, for this target, and Brimful spent no more
    than its share."""
    budgets = {
        (search["trials"], search["seconds"] / share(side), search["target_seconds"])
        for side, search in searches.items()
    }
    if len(budgets) > 1:
        return False
    ((trials, seconds, aimed),) = budgets
    spent = {side: search["spent_seconds"] / share(side) for side, search in searches.items()}
    long_enough = trials >= TRIALS and seconds >= budget(trials, target["seconds"])
    return aimed == target["seconds"] and long_enough and spent[OURS] <= UNEQUAL * min(spent.values())


def leaderboard(paths: Sequence[Path]) -> str:
    """Records that count as a Markdown table, the highest ratio first in each track and target; then a line
    for each file that does not count or is refused."""
    rows, others = [], []
    for path in paths:
        try:
            record = read_record_file(path)
        except BrimfulError as error:
            others.append(f"refused: {error}")
            continue
        if why := misses(record):
            others.append(f"{path.name}: no record ({'; '.join(why)})")
            continue
        result, target = record["result"], record["target"]
        rows.append(
            (
                record["track"] + record["text"]["held_out"],
                TARGETS.index(target["name"]),
                -result["seconds_ratio"]["mean"],
                [
                    f"{record['track']} {record['text']['held_out'][:8]}",
                    f"{target['name']}, {target['loss']:.3f}",
                    _shown(result["seconds_ratio"]),
                    _shown(result["tokens_ratio"]),
                    f"{result['ours']['seconds']['mean'] / 60:.1f}",
                    f"{target['rival']}, {result['rival']['seconds']['mean'] / 60:.1f}",
                    f"{record['runs'][0]['processor']}, {record['threads']} threads",
                    record["runs"][0]["commit"][:8],
                ],
            )
        )
    titles = [
        "track",
        "target",
        "times sooner",
        "times fewer tokens",
        "minutes",
        "rival, minutes",
        "processor",
    ]
    shown = table([*titles, "commit"], [row[-1] for row in sorted(rows)]) if rows else "no record yet"
    return "\n".join([shown, *others])


def _shown(value: Mapping[str, Any]) -> str:
    deviation = value["deviation"]
    return f"{value['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
