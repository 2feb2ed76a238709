"""Records of the speedrun: what counts, what breaks a rule, and what is refused."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from bench.speedrun.contest import compared, target_of
from bench.speedrun.halving import share
from bench.speedrun.points import seconds_per_update
from bench.speedrun.records import digest, leaderboard, misses, read_record_file, write_record
from bench.speedrun.side import OURS
from bench.speedrun.sides import SIDES
from brimful.errors import BrimfulError
from builders.speedrun import run_of


def search_of(side, share):
    """A search of 8 trials that takes this share of a rival's 8 hours."""
    trial = {"settings": {}, "loss": 4.0, "seconds": 1750.0 * share}
    rungs = [{"seconds": seconds * share, "trials": [trial] * 8} for seconds in (1200.0, 2400.0)]
    return {
        "side": side,
        "track": "english-mini",
        "settings": {},
        "target_seconds": 2400.0,
        "trials": 8,
        "seconds": 28_800.0 * share,
        "spent_seconds": 28_000.0 * share,
        "rungs": rungs,
    }


def record_of(ours_losses=(3.9, 3.85, 3.95)):
    losses = {"grouped": 4.0, "lines": 4.5, "modernbert": 4.2}
    seeds = range(10, 10 + len(ours_losses))
    rivals = [run_of(rival, seed, 2400.0, 12_000, loss) for rival, loss in losses.items() for seed in seeds]
    target = target_of("late", rivals)
    runs = []
    for seed, loss in zip(seeds, ours_losses, strict=True):
        pair = [run_of("grouped", seed, 2400.0, 12_000, 4.02), run_of(OURS, seed, 300.0, 3000, loss)]
        runs += pair[:: 1 if seed % 2 == 0 else -1]
    clock = datetime(2026, 1, 1, tzinfo=UTC)
    for number, run in enumerate(runs):
        run |= {"turn": number // 2, "began": clock.isoformat(timespec="seconds")}
        clock += timedelta(seconds=run["seconds"] + 60)
    return {
        "track": "english-mini",
        "full": True,
        "threads": 2,
        "machine": {"commit": "9876543210", "cpu": "a processor"},
        "text": {"held_out": "abcdefghij"},
        "searches": [search_of(side, share(side)) for side in SIDES],
        "target": target,
        "parameters": {"ours": 10, "allowed": 10},
        "runs": runs,
        "result": compared(runs, target),
    }


def test_a_record_counts_and_is_shown(tmp_path):
    record = write_record(tmp_path / "speedrun_a.json", record_of())
    assert read_record_file(tmp_path / "speedrun_a.json") == record
    assert misses(record) == []
    assert record["result"]["seconds_ratio"] == {"mean": 8.0, "deviation": 0.0}
    assert record["result"]["tokens_ratio"]["mean"] == 4.0
    shown = leaderboard([tmp_path / "speedrun_a.json"])
    assert "| 8.00 ± 0.00 | 4.00 ± 0.00 | 5.0 | grouped, 40.0 |" in shown
    assert "| 01234567 |" in shown
    assert leaderboard([]) == "no record yet"


def slowed(run, factor):
    """Let the run take `factor` times as long."""
    for point in run["points"]:
        point["seconds"] *= factor
    run["seconds"] *= factor
    run["update_seconds"] = seconds_per_update(run["points"])


def spend(search, seconds):
    """Let the search take `seconds`."""
    last = search["rungs"][-1]["trials"]
    more = seconds - search["spent_seconds"]
    search["rungs"][-1]["trials"] = [last[0] | {"seconds": last[0]["seconds"] + more}, *last[1:]]
    search["spent_seconds"] = sum(trial["seconds"] for rung in search["rungs"] for trial in rung["trials"])


def reshaped(record, layers):
    """Let Brimful have been tuned and trained with another number of layers."""
    search = next(search for search in record["searches"] if search["side"] == OURS)
    trials = search["rungs"][-1]["trials"]
    for each in (search, trials[0], *(run for run in record["runs"] if run["side"] == OURS)):
        each["settings"] = {"shape.layers": layers}


def few(search, trials):
    """Let the search have had `trials` trials in each rung."""
    search["rungs"] = [rung | {"trials": rung["trials"][:trials]} for rung in search["rungs"]]
    search["trials"] = trials
    search["spent_seconds"] = sum(trial["seconds"] for rung in search["rungs"] for trial in rung["trials"])


def swap_sides(pair):
    """Both sides of a turn the other way round, each at the time of the other."""
    first, second = (dict(run) for run in pair)
    pair[0].update(second | {"began": first["began"]})
    pair[1].update(first | {"began": second["began"]})


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda record: record.update(full=False), "full size"),
        (lambda record: record["runs"][0].update(code=None), "its code changed"),
        (lambda record: record["runs"][3].update(code="another"), "its code changed"),
        (lambda record: record["runs"][3].update(cores_of_others=0.3), "seed 11: others had 0.3 cores"),
        (lambda record: record["runs"][3].update(cores_of_others=None), "it is not known"),
        (lambda record: record["runs"][3].update(cores_of_others=-2.0), "others had -2 cores"),
        (lambda record: record["runs"][3].update(processor="another"), "on several processors"),
        (lambda record: record["runs"][3].update(versions={"torch": "3"}), "with several versions"),
        (lambda record: record["runs"][5].update(changed_files=["a.py"]), "its code changed"),
        (lambda record: slowed(record["runs"][3], 1.2), "grouped took 1.20 times as long"),
        (lambda record: slowed(record["runs"][3], 0.85), "it took 2040 s instead of 2400"),
        (lambda record: slowed(record["runs"][3], 1.11), "it took 2664 s instead of 2400"),
        (lambda record: record["target"]["runs"][4].update(update_seconds=300.0), "lines took 1.25 times"),
        (lambda record: record["searches"][2].update(track="chinese-mini"), "tuned on another track"),
        (
            lambda record: record["searches"][1].update(device="cuda", processor="another"),
            "tuned on a GPU with the paces of another processor",
        ),
        (lambda record: record["parameters"].update(ours=11), "more parameters"),
        (lambda record: record["searches"][2].update(target_seconds=600.0), "not tuned for this target"),
        (lambda record: reshaped(record, 3), "brimful has a shape that the others could not choose"),
        (lambda record: record["searches"][0].update(seconds=28_800.0), "budgets in proportion"),
        (
            lambda record: [search.update(seconds=0.9 * search["seconds"]) for search in record["searches"]],
            "half the target's",
        ),
        (lambda record: [few(search, 3) for search in record["searches"]], "4 or more trials"),
        (lambda record: spend(record["searches"][0], 7750.0), "budgets in proportion"),
        (lambda record: record["searches"].pop(1), "budgets in proportion"),
        (lambda record: swap_sides(record["runs"][2:4]), "do not alternate"),
        (lambda record: record["target"]["runs"][0].update(seed=7), "other seeds"),
        (lambda record: record["target"]["runs"][0].update(code="another"), "its code changed"),
        (lambda record: record["runs"][3].update(began="2026-01-01T00:00:00+00:00"), "do not alternate"),
        (lambda record: record["runs"][5].update(began="2026-01-02T00:00:00+00:00"), "more than 15 minutes"),
        (lambda record: [run.update(seed=100) for run in record["runs"][:2]], "tuned with seed 100"),
        (lambda record: [run.update(seed=2) for run in record["runs"][:2]], "tuned with seed 2"),
    ],
)
def test_what_breaks_a_rule_is_no_record(tmp_path, change, rule):
    record = record_of()
    change(record)
    record["result"] = compared(record["runs"], record["target"])
    write_record(tmp_path / "speedrun_a.json", record)
    assert rule in leaderboard([tmp_path / "speedrun_a.json"])


def test_the_best_of_all_rivals_sets_a_target():
    record = record_of()
    alone = [run for run in record["target"]["runs"] if run["side"] == "modernbert"]
    assert misses(record | {"target": target_of("late", alone)}) == ["without grouped, lines"]


def test_an_outclassed_rival_need_not_run():
    record = record_of()
    others = [run for run in record["target"]["runs"] if run["side"] != "lines"]
    record["target"] = target_of("late", others)
    lines = next(search for search in record["searches"] if search["side"] == "lines")
    for loss, found in ((4.5, ["without lines"]), (4.51, [])):
        lines["rungs"][-1]["trials"] = [trial | {"loss": loss} for trial in lines["rungs"][-1]["trials"]]
        assert misses(record) == found
    record["searches"].remove(lines)
    assert "without lines" in misses(record)


def test_every_seed_must_reach_the_target(tmp_path):
    assert misses(record_of((3.9, 3.8, 4.01))) == ["a seed does not reach the target"]
    assert misses(record_of((3.9, 3.8))) == ["2 seeds, not 3"]


def test_a_tampered_record_is_refused(tmp_path):
    path = tmp_path / "speedrun_a.json"
    write_record(path, record_of())

    def altered(change):
        record = json.loads(path.read_text())
        change(record)
        return record

    faster = altered(lambda record: record["runs"][1].update(seconds=100.0))
    for record, message in [
        (faster, "was changed after it was measured"),
        (faster | {"digest": digest(faster)}, "does not end with its last point"),
    ]:
        other = tmp_path / "other.json"
        other.write_text(json.dumps(record))
        with pytest.raises(BrimfulError, match=message):
            read_record_file(other)
    not_set = "its target does not follow from the rivals' runs"
    for change, message in [
        (
            lambda record: record["result"]["seconds_ratio"].update(mean=80.0),
            "its ratios do not follow from its runs",
        ),
        (
            lambda record: record["runs"][1].update(update_seconds=1.0),
            "took another time than its points say",
        ),
        (lambda record: record["target"].update(loss=4.5), not_set),
        (lambda record: record["target"].update(rival="lines"), not_set),
        (lambda record: record["runs"][1]["settings"].update(a=1), "not have the settings of its search"),
        (lambda record: record["searches"][1].update(settings={"a": 1}), "not those of its best trial"),
        (lambda record: record["searches"][1].update(spent_seconds=1.0), "took other seconds"),
        (lambda record: record["searches"][1].update(trials=9), "another number of trials"),
        (lambda record: record["runs"][0].update(side="lines"), "nor the rival that sets the target"),
        (lambda record: record["runs"][0].update(asked_seconds=1.0), "other seconds than the target's"),
    ]:
        changed = altered(change)
        other.write_text(json.dumps(changed | {"digest": digest(changed)}))
        with pytest.raises(BrimfulError, match=message):
            read_record_file(other)
        assert f"refused: {other} contradicts itself" in leaderboard([other])
