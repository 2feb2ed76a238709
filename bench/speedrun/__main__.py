"""The encoder speedrun: how much sooner does Brimful reach the held-out loss of tuned `transformers`?

    text      fetch, clean and tokenize the track's text; cut the held-out part, and mask it once for all
    paces     pilots of all settings that a search tries, for a search on a GPU
    search    tune each side by successive halving: Brimful in a quarter of a rival's time
    targets   what the best rival reaches in 10, 20 and 40 minutes
    shortest  the shortest time in which Brimful reaches the target
    record    alternate rival and Brimful over seeds, and write the record
    ideas     what the loss is without each of Brimful's ideas, after the same updates
    buys      a frozen probe and fine-tuning of both encoders
    show      check all records, print the leaderboard

Each training is a process of its own whose clock starts with it. Finished trainings and pilots are kept in
--work, so that an interrupted step continues; their names hash settings and text, but not the code: choose
another --work when the code has changed. docs/speedrun.md has the rules.

    python -m bench.speedrun [STEP...] [--language english]
    python -m bench.speedrun --quick                # toy sizes: does it run?
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.study import table
from bench.finetune.data import tables
from bench.speedrun.contest import alternate, compared, leave_out, our_seconds, shortest, target_of, targets
from bench.speedrun.curves import draw_record
from bench.speedrun.halving import (
    TRIALS,
    budget,
    loss_of,
    measure_paces,
    outclassed,
    plan,
    search,
    share,
)
from bench.speedrun.records import FOLDER, leaderboard, misses, read_record_file, write_record
from bench.speedrun.rival import RIVALS
from bench.speedrun.runs import Runs, Settings, parameters_allowed
from bench.speedrun.side import OURS
from bench.speedrun.sides import IDEAS, SIDES, adapted
from bench.speedrun.text import make_text, read_record
from bench.speedrun.track import TARGETS, TRACKS, Track, quick
from brimful.commands.evaluate import evaluate
from brimful.console import say, warn
from brimful.errors import BrimfulError
from brimful.model.shape import SHAPES

STEPS = ("text", "paces", "search", "targets", "shortest", "record", "ideas", "buys", "show")
DEFAULT_STEPS = ("text", "search", "shortest", "record", "show")


class Speedrun:
    """The steps; each makes what is missing of the steps before it, and finds what they have made."""

    def __init__(self, track: Track, options: argparse.Namespace) -> None:
        self.track = track
        self.options = options
        self.folder = options.work / track.name
        self.text_folder = options.work / ("text-quick" if track.quick else f"text-{track.language}")
        self._searches: dict[str, dict[str, Any]] = {}

    @property
    def runs(self) -> Runs:
        """The trainings."""
        options = self.options
        return Runs(self.track, self.text_folder, self.folder, options.threads, options.pilot)

    @property
    def rivals(self) -> list[str]:
        """The sides that are not Brimful's."""
        return [side for side in self.options.sides if side != OURS]

    def text(self) -> None:
        """Make the text."""
        record = make_text(self.track, self.options.data, self.text_folder)
        say(f"{self.track.language}: {record['counts']}, held out {record['held_out'][:16]}")

    def tuned(self, side: str) -> Settings:
        """The settings of a side: given, or found."""
        if self.options.settings:
            return settings_in(self.options.settings, side, self.track)
        return self.searched(side)["settings"]

    def searched(self, side: str) -> dict[str, Any]:
        """The search of a side."""
        options = self.options
        if side not in self._searches:
            minutes: float | None = options.search_minutes
            target = self.target_seconds
            seconds = budget(options.trials, target) if minutes is None else 60 * minutes
            self._searches[side] = search(
                self.runs, side, options.trials, seconds, target, self.around(side), options.search_on
            )
        return self._searches[side]

    def around(self, side: str) -> Settings | None:
        """The settings around which the search of a side draws, if they are given."""
        given = self.options.around
        return settings_in(given, side, self.track) if given else None

    def paces(self) -> None:
        """Make the pilots of all searches."""
        for side in self.options.sides:
            planned = plan(self.runs, side, self.options.trials, self.target_seconds, self.around(side))
            failed = measure_paces(self.runs, side, planned.drawn)
            for message in failed:
                warn(message)
            tried = len(planned.drawn)
            say(f"{side}: {tried - len(failed)} of {tried} settings have a pace")

    def search(self) -> None:
        """Tune each side."""
        if self.options.settings:
            say(f"the settings of {self.options.settings} are taken: nothing is tuned")
            return
        for side in self.options.sides:
            found = self.searched(side)
            seconds = found["rungs"][-1]["seconds"]
            say(f"{side}: {found['settings']}, loss {loss_of(found):.3f} in {seconds:.0f} s")

    @cached_property
    def searches_of_rivals(self) -> list[dict[str, Any]]:
        """The best rival's first, without those that are outclassed.

        Raises:
            BrimfulError: there is no rival.
        """
        if not self.rivals:
            raise BrimfulError(f"a target needs a rival: give --sides {OURS} and one of {', '.join(RIVALS)}")
        if self.options.settings:
            searches = read_record_file(self.options.settings)["searches"]
        else:
            searches = [self.searched(rival) for rival in self.rivals]
        left_out = outclassed(searches)
        if left_out:
            say(f"outclassed in the search: {', '.join(sorted(left_out))}")
        contenders = [found for found in searches if found["side"] in set(self.rivals) - left_out]
        if not contenders:
            raise BrimfulError(f"no rival is left of {', '.join(self.rivals)}: give others with --sides")
        return sorted(contenders, key=loss_of)

    def rivals_tuned(self) -> dict[str, Settings]:
        """The settings of each rival that is not outclassed."""
        return {found["side"]: self.tuned(found["side"]) for found in self.searches_of_rivals}

    @property
    def favourite(self) -> str:
        """The rival whose search had the lowest loss."""
        side: str = self.searches_of_rivals[0]["side"]
        return side

    @cached_property
    def target(self) -> dict[str, Any]:
        """The target of the record, set by runs of its own, or by the record's if our seconds are given."""
        name = self.options.target
        if self.options.our_seconds is not None:
            return target_of(name, [run for run in self.made if run["side"] != OURS])
        return targets(self.runs, self.rivals_tuned(), self.options.seeds, [name])[0]

    @property
    def target_seconds(self) -> float:
        """What the rivals get in the record."""
        return self.track.seconds[TARGETS.index(self.options.target)]

    def targets(self) -> None:
        """Set all targets."""
        targets(self.runs, self.rivals_tuned(), self.options.seeds)

    @cached_property
    def tried(self) -> list[dict[str, Any]]:
        """The trials that bracket Brimful's shortest time; none if it is given."""
        if self.options.our_seconds is not None:
            return []
        return shortest(self.runs, self.tuned(OURS), self.target)

    @property
    def our_seconds(self) -> float:
        """What Brimful gets in the record."""
        given: float | None = self.options.our_seconds
        return our_seconds(self.tried, self.target) if given is None else given

    def shortest(self) -> None:
        """Find Brimful's shortest time."""
        say(f"{OURS} gets {self.our_seconds:.0f} s")

    @cached_property
    def made(self) -> list[dict[str, Any]]:
        """The runs of the record: of all rivals if they set the target, else of the best one."""
        rivals = self.rivals_tuned()
        if self.options.our_seconds is None:
            rivals = {self.target["rival"]: rivals[self.target["rival"]]}
        else:  # the one that will set the target runs beside Brimful
            favourite = self.favourite
            rivals[favourite] = rivals.pop(favourite)
        sides = {rival: (settings, self.target_seconds) for rival, settings in rivals.items()}
        sides[OURS] = (self.tuned(OURS), self.our_seconds)
        return alternate(self.runs, sides, self.options.seeds)

    def contested(self) -> list[dict[str, Any]]:
        """The runs of Brimful and of the best rival."""
        return [run for run in self.made if run["side"] in (OURS, self.target["rival"])]

    def record(self) -> None:
        """Alternate the sides and write the record."""
        target, made = self.target, self.contested()
        kept = [{name: value for name, value in run.items() if name != "model"} for run in made]
        if self.options.our_seconds is not None and target["rival"] != self.favourite:
            warn(f"{target['rival']} sets the target, and {self.favourite} ran between it and {OURS}")
        text = read_record(self.text_folder)
        ours = next(run for run in made if run["side"] == OURS)
        optional: dict[str, Any] = {}
        for name, find in (("ideas", self.found_ideas), ("buys", self.found_buys)):
            if name in self.options.steps:
                optional[name] = find()
        written = write_record(
            self.options.out,
            {
                "track": self.track.name,
                "full": self.track.full,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "machine": machine_facts(),
                "threads": self.options.threads,
                "text": {
                    name: text[name] for name in ("packages", "tokenizer", "training", "held_out", "counts")
                },
                "searches": [self.searched(side) for side in self.options.sides]
                if not self.options.settings
                else read_record_file(self.options.settings)["searches"],
                "target": target,
                "shortest": self.tried,
                "parameters": {
                    "ours": ours["points"][-1]["parameters"],
                    "allowed": parameters_allowed(self.track, text["counts"]["vocabulary"]),
                },
                "runs": kept,
                "result": compared(kept, target),
                **optional,
            },
        )
        say(f"{self.options.out}: {'; '.join(misses(written)) or 'a record'}")
        draw_record(self.options.out.with_suffix(".png"), written)
        print(shown(written))

    def found_ideas(self) -> dict[str, Any]:
        """What each idea contributes."""
        ideas = tuple(IDEAS)[:1] if self.track.quick else tuple(IDEAS)
        return leave_out(self.runs, self.tuned(OURS), self.our_seconds, self.options.seeds, ideas)

    def ideas(self) -> None:
        """Leave out each idea, and print a table."""
        rows = [
            [each["idea"], f"{each['rise']:+.3f}", _error(each), f"{each['longer']:.2f}"]
            for each in self.found_ideas()["without"]
        ]
        print(table(["without", "loss rises by", "standard error", "time"], rows))

    def found_buys(self) -> list[dict[str, Any]]:
        """Probe and fine-tuning of both encoders of the record's first seed, on each task."""
        found = []
        first = [run for run in self.contested() if run["turn"] == 0]
        names = {str(self.folder / "runs" / run["model"] / "model"): run["side"] for run in first}
        for task in self.track.tasks:
            train, test = tables(self.options.data, task, 2000)
            out = self.folder / "buys" / f"{task}-{'-'.join(run['model'] for run in first)}"
            summary = evaluate(
                encoders=tuple(names),
                out=str(out),
                train=str(train),
                test=str(test),
                task="classification",
                max_length=self.track.max_length,
                seeds=len(self.options.seeds),
            )
            models = [dict(model) for model in summary["models"]]
            for model in models:
                for path, side in names.items():
                    model["model"] = model["model"].replace(path, side)
            found.append({"task": task, "metric": summary["primary_metric"], "models": models})
        return found

    def buys(self) -> None:
        """Probe and fine-tune, and print a table."""
        rows = [
            [found["task"], model["model"], f"{model[found['metric']]:.3f}"]
            for found in self.found_buys()
            for model in found["models"]
        ]
        print(table(["task", "model", "accuracy"], rows))

    def show(self) -> None:
        """Check all records and print the leaderboard."""
        print(leaderboard(sorted(FOLDER.glob("speedrun_*.json"))))


def settings_in(path: Path, side: str, track: Track) -> Settings:
    """The settings of a side in a record, adapted to the track."""
    for found in read_record_file(path)["searches"]:
        if found["side"] == side:
            return adapted(found["settings"], side, track)
    raise BrimfulError(f"{path} has no settings of {side}")


def _error(found: dict[str, Any]) -> str:
    return "" if found["standard_error"] is None else f"{found['standard_error']:.3f}"


def shown(record: dict[str, Any]) -> str:
    """A record's two sides as a table."""
    rows = []
    for side in ("ours", "rival"):
        found = record["result"][side]
        name = OURS if side == "ours" else record["target"]["rival"]
        rows.append(
            [
                name,
                f"{found['loss']['mean']:.3f}",
                f"{found['seconds']['mean']:.0f}",
                f"{found['tokens']['mean'] / 1e6:.2f}",
                f"{found['flops']['mean'] / 1e12:.1f}",
            ]
        )
    ratio = record["result"]["seconds_ratio"]["mean"]
    titles = ["side", "loss", "seconds", "million tokens", "Tflop"]
    said = f"target {record['target']['loss']:.3f} ({record['target']['name']}): {ratio:.2f} times as soon"
    return f"{table(titles, rows)}\n{said if record['result']['reached'] else 'the target was not reached'}"


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.speedrun",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "steps", nargs="*", metavar="STEP", help="by default all but paces, targets, ideas and buys"
    )
    parser.add_argument("--language", choices=TRACKS, default="english")
    parser.add_argument("--model", choices=SHAPES, help="another size")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE")
    parser.add_argument("--target", choices=TARGETS, default="late")
    parser.add_argument(
        "--minutes",
        nargs=3,
        type=float,
        help="of the rivals for each target; others than 10 20 40 make no record",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--trials", type=int, default=TRIALS, help="of the first rung of each search")
    parser.add_argument(
        "--search-minutes",
        type=float,
        help=f"of each rival's search, of which Brimful's takes {share(OURS):g}; by default, a rival's trials"
        " have half of the target's time",
    )
    parser.add_argument(
        "--search-on",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: the search trains on a GPU, as many updates as the CPU makes by the step `paces`",
    )
    parser.add_argument("--settings", type=Path, help="a record whose settings are taken; nothing is tuned")
    parser.add_argument("--around", type=Path, help="a record around whose settings the search draws")
    parser.add_argument(
        "--our-seconds",
        type=float,
        help="what Brimful gets in the record, whose runs then set the target too; the steps `targets` and"
        " `shortest` are not needed",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pilot", type=float, default=10.0, help="seconds of training that give a pace")
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--work", type=Path, help="where trainings are kept; by default DATA/speedrun")
    parser.add_argument(
        "--out", type=Path, help="the record, by default speedrun_TRACK_TARGET.json in bench/results"
    )
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    if options.quick:
        parser.set_defaults(
            sides=[OURS, "grouped"], seeds=[0], trials=2, search_minutes=0.3, pilot=1.0, steps=[]
        )
        options = parser.parse_args(arguments)
    if unknown := [step for step in options.steps if step not in STEPS]:
        parser.error(f"there is no step {unknown[0]}: choose from {', '.join(STEPS)}")
    if options.trials < 2 or (options.search_minutes is not None and options.search_minutes <= 0):
        parser.error("--trials must be at least 2, and --search-minutes above 0")
    if options.settings and options.around:
        parser.error("give --settings or --around, not both")
    options.steps = options.steps or list(DEFAULT_STEPS)
    if OURS not in options.sides and not {"shortest", "record", "ideas", "buys"}.isdisjoint(options.steps):
        parser.error(f"--sides needs {OURS}")
    options.data = options.data.resolve()
    options.work = (options.work or options.data / "speedrun").resolve()
    return options


def track_of(options: argparse.Namespace) -> Track:
    """The track that the command line names."""
    track = TRACKS[options.language]
    if options.model:
        track = replace(track, model=options.model)
    if options.minutes:
        track = replace(track, seconds=tuple(60 * minutes for minutes in options.minutes))
    return quick(track) if options.quick else track


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps in their order."""
    options = options_of(arguments)
    track = track_of(options)
    if options.out is None:
        name = f"speedrun_{track.name.replace('-', '_')}_{options.target}.json"
        options.out = options.work / track.name / name if not track.full else FOLDER / name
    busy = os.getloadavg()[0]
    if busy > 0.5 and options.steps != ["show"]:
        warn(f"the machine is busy (load {busy:.1f}): its times are not those of an idle one; see --threads")
    speedrun = Speedrun(track, options)
    steps: dict[str, Callable[[], None]] = {step: getattr(speedrun, step) for step in STEPS}
    try:
        for step in STEPS:
            if step in options.steps:
                steps[step]()
    except BrimfulError as error:
        sys.exit(f"speedrun: {error}")


if __name__ == "__main__":
    main()
