"""The process of bench/train that trains: turns of either side, and the split of the Trainer's updates."""

import shutil
import tempfile
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from bench.common.turns import Answer, serve
from bench.train.sides import (
    Beforehand,
    Job,
    Model,
    Variant,
    drawn_progress,
    made_beforehand,
    open_stream,
    plain_loop,
    taken,
    trainer_of,
)
from brimful.data.loader import Stream
from brimful.distributed import World, world
from brimful.train.memory import keep_freed_memory
from brimful.train.metrics import read_metrics

RANGES = ("forward", "backward", "communication", "optimizer", "checkpoint", "evaluation")


class Sides:
    """A job's batches, and the weights that either side must end with."""

    def __init__(self, job: Job, folder: Path, ranks: World) -> None:
        self.job = job
        self.folder = folder
        self.world = ranks
        self.stream: Stream = open_stream(job, folder, ranks)
        self.made: Beforehand = made_beforehand(self.stream, job.updates)
        self.expected: list[Tensor] = []

    def plain(self) -> Answer:
        """A turn of the plain loop."""
        model = Model(self.job)
        found = taken(plain_loop(model, self.made.updates))
        self._check(model)
        return found

    def trainer(self, variant: Variant, updates: int, profiler: profile | None = None) -> Answer:
        """A turn of the Trainer; also `waited`, the seconds that it stood still for data."""
        model, directory = Model(self.job), Path(tempfile.mkdtemp(dir=self.folder))
        stream = self.stream if variant.stream else self.made
        config = {"log_every": updates} | variant.config if profiler else variant.config
        trainer = trainer_of(model, stream, updates, directory, self.world, config)
        with drawn_progress() if variant.bar else nullcontext(), profiler or nullcontext():
            found = taken(lambda: trainer.run("bench"))
        lines = read_metrics(trainer.journal.metrics.path) if self.world.is_main else []
        if lines:
            found["waited"] = lines[-1]["data_wait"] * lines[-1]["seconds"]
        shutil.rmtree(directory)
        if updates == self.job.updates and self.world.size == 1:
            self._check(model)
        return found

    def _check(self, model: Model) -> None:
        weights = model.weights()
        self.expected = self.expected or weights
        if not all(map(torch.equal, weights, self.expected)):
            raise ValueError("the weights differ from the previous turn's, so nothing is timed")


lasting = ExitStack()
made: list[Sides] = []


def setup(job: dict[str, Any], folder: str, threads: int) -> Answer:
    """Open the corpus and make the batches; a turn of both sides to warm up."""
    torch.set_num_threads(threads)
    keep_freed_memory()  # as the Trainer does, for both sides
    ranks = lasting.enter_context(world())
    made[:] = [Sides(Job(**job), Path(folder), ranks)]
    lasting.enter_context(closing(made[0].stream))  # type: ignore[type-var]
    batches = [batch for update in made[0].made.updates for batch in update]
    parameters = sum(weight.numel() for weight in Model(made[0].job).weights())
    return {"real_tokens": sum(batch.real_tokens for batch in batches), "parameters": parameters}


def plain() -> Answer:
    """Seconds of a turn of the plain loop."""
    return made[0].plain()


def trainer(variant: dict[str, Any]) -> Answer:
    """Seconds of a turn of the Trainer."""
    return made[0].trainer(Variant(**variant), made[0].job.updates)


def split(updates: int, checkpoints: int) -> Answer:
    """Seconds of each part of the updates under torch's profiler, and of all of them without it."""
    variant = Variant(stream=True, config={"checkpoint_every": updates // checkpoints})
    made[0].trainer(variant, updates)
    whole = made[0].trainer(variant, updates)
    profiler = profile(activities=[ProfilerActivity.CPU])
    profiled = made[0].trainer(variant, updates, profiler)
    seconds = {event.key: event.cpu_time_total / 1e6 for event in profiler.key_averages()}
    parts = {name: seconds.get(name, 0.0) for name in RANGES}
    return {"parts": parts, "whole": whole["wall"], **profiled}


if __name__ == "__main__":
    serve({"setup": setup, "plain": plain, "trainer": trainer, "split": split})
    lasting.close()
