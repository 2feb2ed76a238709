"""The encoder speedrun: how much sooner does Brimful reach the held-out loss of tuned `transformers`?

    text    fetch, clean and tokenize the track's text; cut the held-out part, and mask it once for all
    record  tune both sides, Brimful in a quarter of the rival's time; alternate them over seeds
    show    check all records

Finished trainings are kept in --work, so an interrupted step continues; their names hash settings and text,
but not the code: choose another --work when the code has changed. docs/speedrun.md has the rules.

    python -m bench.speedrun [STEP...] [--target early] [--quick]
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.speedrun.records import FORMAT, compared, digest, misses, shown
from bench.speedrun.runs import OURS, RIVAL, Runs
from bench.speedrun.search import TRIALS, search
from bench.speedrun.text import ENGLISH, TARGETS, TOY, make_text
from brimful.base.console import say, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import write_json
from brimful.model.shape import SHAPES

STEPS = ("text", "record", "show")
FOLDER = Path("bench/results")


def record(runs: Runs, options: argparse.Namespace, target: float) -> None:
    """Alternate the sides and write the record. The target is the rival's mean loss."""
    searches = [search(runs, side, options.trials, target) for side in (RIVAL, OURS)]
    settings = {found["side"]: found["settings"] for found in searches}
    ours = options.our_seconds or target / 8
    made = runs.alternate({RIVAL: (settings[RIVAL], target), OURS: (settings[OURS], ours)}, options.seeds)
    rivals = [run for run in made if run["side"] == RIVAL]
    loss = statistics.fmean(run["loss"] for run in rivals)
    found = {"format": FORMAT, "track": runs.track.name, "full": bool(runs.track.pages)}
    found |= {
        "machine": machine_facts(),
        "threads": options.threads,
        "text": {"held_out": runs.held_out.hash},
    }
    aim = {"name": options.target, "seconds": target, "rival": RIVAL, "loss": loss, "runs": rivals}
    found |= {"searches": searches, "target": aim, "runs": made, "result": compared(made, loss)}
    write_json(options.out, found | {"digest": digest(found)})
    say(f"{options.out}: {'; '.join(misses(found)) or 'a record'}")
    print(f"target {loss:.3f}: {found['result']['seconds_ratio']['mean']:.2f} times as soon")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps in their order; each makes what is missing of those before it."""
    parser = argparse.ArgumentParser(
        "bench.speedrun", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"by default all: {', '.join(STEPS)}")
    parser.add_argument("--model", choices=SHAPES, default="mini", help="another size")
    parser.add_argument("--target", choices=TARGETS, default="late")
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--trials", type=int, default=TRIALS, help="of the search of each side")
    parser.add_argument("--our-seconds", type=float, help="what Brimful gets: an eighth of the rival's")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--work", type=Path, help="where trainings are kept: by default DATA/speedrun")
    parser.add_argument("--out", type=Path, help="by default speedrun_TRACK_TARGET.json in bench/results")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"there is no step {unknown.pop()}: choose from {', '.join(STEPS)}")
    track = replace(ENGLISH, model=options.model)
    if options.quick:
        track, options.seeds, options.trials = TOY, [0], 2
    steps = options.steps or STEPS
    work = (options.work or options.data / "speedrun").resolve()
    name = f"speedrun_{track.name.replace('-', '_')}_{options.target}.json"
    options.out = options.out or (work / track.name if options.quick else FOLDER) / name
    target = track.seconds[TARGETS.index(options.target)]
    folder = work / ("text-quick" if options.quick else "text-english")
    if os.getloadavg()[0] > 0.5:
        warn("the machine is busy, so these times are longer than on an idle one")
    try:
        if set(steps) != {"show"}:
            held_out = make_text(track, options.data.resolve(), folder)
            if held_out.hash != track.fixed and track.pages:
                warn("the packages of the track have changed: compare with no earlier results")
        if "record" in steps:
            record(Runs(track, held_out, folder, work / track.name, options.threads), options, target)
        if "show" in steps:
            print(*(shown(path) for path in sorted(FOLDER.glob("speedrun_*.json"))), sep="\n")
    except BrimfulError as error:
        sys.exit(f"speedrun: {error}")


if __name__ == "__main__":
    main()
