"""Trainings that are kept: each is made once, in a process of its own, scored, and found again later."""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.common.processes import processor, state_of_the_code, time_of_others
from bench.common.study import Run, kept
from bench.speedrun.text import HeldOut, Track, score, tokenizer_of
from brimful.base.config import config_hash
from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json

OURS, RIVAL = "brimful", "modernbert"
SEED = 100  # of the trials of a search; no record has it
ENVIRONMENT = {"GOMP_SPINCOUNT": "20000", "CUDA_VISIBLE_DEVICES": ""}  # the first is what `brimful` sets
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "numba")
Settings = dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """The trainings of a track; `text` is the folder of its text, `work` keeps results."""

    track: Track
    held_out: HeldOut
    text: Path
    work: Path
    threads: int

    def run(self, side: str, settings: Settings, seconds: float, seed: int, contest: str = "") -> Run:
        """Train until the process has taken `seconds`, and score the end. Rates follow the clock. A compiled
        training comes after two updates that fill the compiler's cache; a toy one has 16 updates. A run of a
        contest, i.e. of a record, is made for it alone."""
        key = config_hash([self.held_out.hash, settings, self.threads, seconds, seed, contest])
        place = self.work / "runs" / f"{side}-{key}"
        length = {"updates": 16} if not self.track.pages else {"seconds": seconds}

        def make() -> Run:
            if settings.get("compile") or settings.get("trainer.compile"):
                self.train(place, side, settings, seed, {"updates": 2})
            run = {"side": side, "settings": settings, "seed": seed, "asked_seconds": seconds}
            run |= {"began": datetime.now(UTC).isoformat(timespec="seconds"), **state_of_the_code()}
            run |= {"processor": processor(), "versions": {name: version(name) for name in PACKAGES}}
            run |= self.train(place, side, settings, seed, length)
            run["points"][-1] |= score(place / "model", self.held_out, tokenizer_of(self.text)[1].pad)
            shutil.rmtree(place)
            return run | ended(run["points"])

        return kept(place.with_suffix(".json"), make)

    def train(self, place: Path, side: str, settings: Settings, seed: int, length: Mapping[str, Any]) -> Run:
        """One process: its points, and the cores that others had; its model stays in `place`."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        training = {"side": side, "track": asdict(self.track), "settings": settings, "seed": seed}
        training |= {"text": str(self.text), "out": str(place), "threads": self.threads}
        training["length"] = {"started": time.monotonic(), **length}
        command = [sys.executable, "-m", "bench.speedrun.training", json.dumps(training)]
        environment = os.environ | ENVIRONMENT | {"OMP_NUM_THREADS": str(self.threads)}
        before, began = time_of_others() or math.nan, time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            status = subprocess.run(command, stdout=output, stderr=output, env=environment).returncode
            output.seek(0)
            lines = [line.strip() for line in output.read().splitlines() if line.strip()] or ["no message"]
        if status:
            raise BrimfulError(f"{side} ended with status {status} ({lines[-1]}): {json.dumps(settings)}")
        cores = ((time_of_others() or math.nan) - before) / (time.monotonic() - began)
        return {**read_json(place / "result.json"), "cores_of_others": round(cores, 3)}

    def alternate(self, sides: Mapping[str, tuple[Settings, float]], seeds: Sequence[int]) -> list[Run]:
        """The runs of a record: each side, with its settings and seconds, with one seed, then with the next
        the other way round. They belong together: if one of these changes, all are made again."""
        made, contest = [], config_hash([dict(sides), list(seeds)])
        for turn, seed in enumerate(seeds):
            for side in list(sides)[:: 1 if turn % 2 == 0 else -1]:
                run = self.run(side, *sides[side], seed, contest)
                say(f"{side}, seed {seed}: loss {run['loss']:.3f} after {run['seconds']:.0f} s")
                made.append({"turn": turn, **run})
        return made


def ended(points: Sequence[Mapping[str, Any]]) -> Run:
    """What a run reached: its last point, and the seconds of an update without the start-up."""
    first, last = points[0], points[-1]
    taken = float(last["seconds"] - first["seconds"]) / max(1, last["updates"] - first["updates"])
    names = ("seconds", "updates", "tokens", "flops", "loss")
    return {**{name: last[name] for name in names}, "update_seconds": taken}
