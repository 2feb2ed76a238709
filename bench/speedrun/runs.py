"""Trainings that are kept: each is made once, in a process of its own, and found again later."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from threading import Lock
from typing import Any

from bench.common.processes import processor, state_of_the_code, time_of_others
from bench.common.study import kept
from bench.speedrun.points import Length, seconds_per_update
from bench.speedrun.scoring import score
from bench.speedrun.side import Training, command
from bench.speedrun.text import load_held_out, read_record, tokenizer_of
from bench.speedrun.track import Track
from brimful.config import config_hash
from brimful.errors import BrimfulError
from brimful.storage import read_json

Settings = dict[str, Any]
Run = dict[str, Any]
SEED = 100
"""Of pilots and of the trials of a search; no record has it."""
ENVIRONMENT = {"GOMP_SPINCOUNT": "20000"}
"""What `brimful` sets for itself, for all sides: threads that share a core do not stall (decisions.md)."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""`brimful pretrain` takes a GPU if it sees one."""
COMPILES = ("compile", "trainer.compile")
"""Settings of a rival and of Brimful that compile the model."""
QUICK_UPDATES = 16
"""The fewest of a toy training, whose seconds may all go into its start."""
SAME_PACE = {
    "learning_rate",
    "warmup",
    "optimizer.learning_rate",
    "optimizer.muon_learning_rate",
    "optimizer.weight_decay",
    "schedule.shape",
    "schedule.warmup",
}
"""Settings that do not change how long an update takes, so that a pilot is for all of their values."""
QUIET = 0.05
"""The most cores that others may have during a measured run, on average. Less than minus this is no
measurement."""
NEAR = 0.05
"""How far the seconds of a measured run may be from those asked for, as a fraction of these."""
SCORING = Lock()
"""transformers changes functions of the whole process while it loads a model."""
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "numba")
LIMIT = 4.0
"""A training that takes this many times its seconds, and `START` more, is ended."""
START = 300.0


@dataclass(frozen=True)
class Runs:
    """The trainings of a track.

    Attributes:
        text: the folder of the track's text.
        work: where results are kept; weights are too, of trainings that ask for it.
        threads: of each process.
        pilot: seconds of training that give the pace of a setting.
        pilots: make the pilots that are missing. False: this is not the machine whose paces count.
    """

    track: Track
    text: Path
    work: Path
    threads: int
    pilot: float
    pilots: bool = True

    def __post_init__(self) -> None:
        if not (self.text / "track.json").is_file():
            raise BrimfulError(f"{self.text} has no text: run the step `text` first")

    @property
    def data(self) -> str:
        """A hash of what is trained on and scored."""
        record = read_record(self.text)
        return config_hash([record["training"], record["held_out"], record["tokenizer"]])

    def place(self, kind: str, side: str, settings: Mapping[str, Any], *more: Any) -> Path:
        """Where the result of a training is kept: its name hashes all that decides it, except the code."""
        key = config_hash([self.data, side, dict(settings), self.threads, *more])
        return self.work / kind / f"{side}-{key}"

    def pace(self, side: str, settings: Settings) -> Run:
        """Updates a second and the seconds of the start-up, from a pilot; and its processor.

        Raises:
            BrimfulError: the pilot failed, or is missing and may not be made here.
        """
        same = {k: v for k, v in settings.items() if k not in SAME_PACE}
        place = self.place("pilots", side, same, self.pilot)

        def make() -> Run:
            if not self.pilots:
                raise BrimfulError(
                    f"{side} has no pace for {json.dumps(same)}: run the step `paces` on the machine of the"
                    " record with the same options, and copy its --work here"
                )
            if _compiles(settings):
                self._pilot(place, side, settings, SEED)  # fills the compiler's cache
            return {**self._pilot(place, side, settings, SEED), "processor": processor()}

        return kept(place.with_suffix(".json"), make)

    def _pilot(self, place: Path, side: str, settings: Settings, seed: int) -> Run:
        length = Length(pilot=self.pilot)
        found = self._train(place, side, settings, length, seed=seed, expected=self.pilot)
        shutil.rmtree(place)
        return found

    def run(
        self,
        side: str,
        settings: Settings,
        seconds: float,
        seed: int,
        *,
        updates: int | None = None,
        contest: str | None = None,
        device: str = "cpu",
    ) -> Run:
        """Train until the process has taken `seconds`, and score the end. Rates follow the clock. Before a
        compiled training, a pilot fills the compiler's cache. A toy training has a pilot's number of updates.

        Args:
            updates: their number; the training ends after them instead.
            contest: which contest the run belongs to. Such a run is made for it alone; its points on the way
                are scored too, and its final weights stay in the folder that the result names.
            device: cuda trains on a GPU, for losses alone: its seconds say nothing of the CPU.

        Raises:
            BrimfulError: the training failed; or a run of a contest was not quiet, or took other seconds than
                asked: it is not kept, so that the same command makes it again.
        """
        more = () if device == "cpu" else (device,)
        place = self.place("runs", side, settings, seconds, seed, updates, contest, *more)

        def make() -> Run:
            length = Length(updates=updates) if updates else Length(seconds=seconds)
            if self.track.quick and not updates:
                length = Length(updates=self.updates_in(side, settings, seconds))
            elif _compiles(settings):  # with a full cache, whose shapes depend on the seed
                self._pilot(place, side, settings, seed)
            began = {
                "began": datetime.now(UTC).isoformat(timespec="seconds"),
                **state_of_the_code(),
                "processor": processor(),
                "versions": {name: version(name) for name in PACKAGES} | {"python": python_version()},
            }
            found = self._train(place, side, settings, length, seed=seed, expected=seconds, device=device)
            folders = [place / "points" / f"{point['updates']:07d}" for point in found["points"]]
            scored = list(zip(found["points"], folders, strict=True))
            held_out, special = load_held_out(self.text), tokenizer_of(self.text)[1]
            with SCORING:
                for point, folder in scored if contest else scored[-1:]:
                    point |= score(folder, held_out, special.pad)
            if contest:
                shutil.rmtree(place / "model", ignore_errors=True)
                folders[-1].rename(place / "model")
                tokenizer = self.text / "training" / "tokenizer.json"
                shutil.copyfile(tokenizer, place / "model" / "tokenizer.json")
            for scratch in (place / "points", place / "run") if contest else (place,):
                shutil.rmtree(scratch, ignore_errors=True)
            model = {"model": place.name} if contest else {}
            run = {
                "side": side,
                "settings": settings,
                "seed": seed,
                **began,
                "asked_seconds": seconds,
                "cores_of_others": found["cores_of_others"],
                **{name: scored[-1][0][name] for name in ("seconds", "updates", "tokens", "flops", "loss")},
                "update_seconds": seconds_per_update(found["points"]),
                "points": found["points"],
                **model,
            }
            if contest and not self.track.quick and (fault := fault_of(run)):
                raise BrimfulError(f"{side}, seed {seed}: {fault}; give the same command again")
            return run

        return kept(place.with_suffix(".json"), make)

    def updates_in(self, side: str, settings: Settings, seconds: float) -> int:
        """The updates of a training whose process takes about `seconds`, by the pace of a pilot.

        Raises:
            BrimfulError: there is time for fewer than two.
        """
        pace = self.pace(side, settings)
        updates = int((seconds - pace["start_seconds"]) * pace["updates_per_second"])
        if self.track.quick:
            return max(QUICK_UPDATES, updates)
        if updates < 2:
            raise BrimfulError(
                f"{side} needs {pace['start_seconds']:.0f} s to start, and {seconds:g} s leave no time to"
                " train: give more seconds"
            )
        return updates

    def _train(
        self,
        place: Path,
        side: str,
        settings: Settings,
        length: Length,
        *,
        seed: int,
        expected: float,
        device: str = "cpu",
    ) -> Run:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        track = asdict(self.track)
        training = Training(
            side,
            track,
            settings,
            str(self.text),
            str(place),
            seed,
            asdict(length),
            self.threads,
            time.monotonic(),
            device,
        )
        hidden = NO_GPU if device == "cpu" else {}
        limit = START + LIMIT * expected
        before, began = time_of_others(), time.monotonic()
        with tempfile.TemporaryFile("w+") as said:
            try:
                status = subprocess.run(
                    command(training),
                    stdout=said,
                    stderr=said,
                    timeout=limit,
                    env=os.environ | {"OMP_NUM_THREADS": str(self.threads), **ENVIRONMENT, **hidden},
                ).returncode
            except subprocess.TimeoutExpired:
                raise BrimfulError(
                    f"{side} took more than {limit:.0f} s: it hangs, or an update takes minutes:"
                    f" {json.dumps(settings)}"
                ) from None
            said.seek(0)
            lines = [line.strip() for line in said.read().splitlines() if line.strip()] or ["no message"]
        if status:
            raise BrimfulError(f"{side} ended with status {status} ({lines[-1]}): {json.dumps(settings)}")
        cores = None
        if before is not None and (after := time_of_others()) is not None:
            cores = round((after - before) / (time.monotonic() - began), 3)
        return {**read_json(place / "result.json"), "cores_of_others": cores}


def _compiles(settings: Settings) -> bool:
    return any(settings.get(name) for name in COMPILES)


def fault_of(run: Mapping[str, Any]) -> str | None:
    """Why a run is no measurement; None if it is one."""
    cores, seconds, asked = run["cores_of_others"], run["seconds"], run["asked_seconds"]
    if cores is None:
        return "it is not known how many cores others had"
    if abs(cores) > QUIET:
        return f"others had {cores:g} cores, and at most {QUIET} are allowed"
    if abs(seconds / asked - 1) > NEAR:
        return f"it took {seconds:.0f} s instead of {asked:.0f}: something held its last update up"
    return None


def parameters_allowed(track: Track, vocabulary: int) -> int:
    """The most parameters of a model: those of the rival `grouped`."""
    from bench.speedrun.rival import new_model
    from brimful.text.special_ids import SpecialIds

    model = new_model("grouped", track, vocabulary, SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4))
    return sum(parameter.numel() for parameter in model.parameters())
