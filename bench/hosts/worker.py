"""One rank of bench/hosts: turns of the Trainer, and what each update took and sent."""

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bench.common.turns import Answer, serve
from bench.train.sides import Beforehand, Job, Model, made_beforehand, open_stream, trainer_of
from brimful.distributed import World, world
from brimful.train import data_parallel
from brimful.train.memory import keep_freed_memory


class Rank:
    """A rank, with its batches of all updates of a turn."""

    def __init__(self, job: Job, folder: Path, ranks: World) -> None:
        self.job = job
        self.folder = folder
        self.world = ranks
        self.stream: Beforehand = made_beforehand(open_stream(job, folder, ranks), job.updates)
        self.counter = Path("/sys/class/net", os.environ["GLOO_SOCKET_IFNAME"], "statistics/tx_bytes")

    def turn(self, config: dict[str, Any]) -> Answer:
        """Train; for each update: `update`, its seconds; `waited`, the seconds with nothing but
        communication; `sent`, the bytes that left this host. Also the bytes of each bucket."""
        data_parallel.BUCKET_MB = config.pop("bucket_mb")
        directory = Path(tempfile.mkdtemp(dir=self.folder))
        model = Model(self.job)
        trainer = trainer_of(
            model, self.stream, self.job.updates, directory, self.world, {"prefetch": 0} | config
        )
        update, gradients = trainer.train_step, trainer.gradients
        gather = gradients.gather
        found: list[Answer] = []
        waited = 0.0

        def timed_gather() -> None:
            nonlocal waited
            started = time.perf_counter()
            gather()
            waited += time.perf_counter() - started

        def timed(*arguments: Any) -> Any:
            nonlocal waited
            self.world.barrier()
            waited, sent, started = 0.0, self._sent(), time.perf_counter()
            result = update(*arguments)
            seconds = time.perf_counter() - started
            self.world.barrier()  # what this rank has sent may still be in a queue
            found.append({"update": seconds, "waited": waited, "sent": self._sent() - sent})
            return result

        gradients.gather = timed_gather  # type: ignore[method-assign]
        trainer.train_step = timed  # type: ignore[method-assign]
        sizes = [flat.numbers.nbytes for flat in gradients.flats]
        trainer.run("bench")
        shutil.rmtree(directory)
        return {"updates": found, "buckets": sizes}

    def _sent(self) -> int:
        return int(self.counter.read_text())


lasting = ExitStack()
made: list[Rank] = []


def setup(job: dict[str, Any], folder: str) -> Answer:
    """Join the other rank, and make the batches."""
    torch.set_num_threads(1)
    keep_freed_memory()
    made[:] = [Rank(Job(**job), Path(folder), lasting.enter_context(world()))]
    return {"parameters": sum(weight.numel() for weight in Model(made[0].job).weights())}


def turn(config: dict[str, Any]) -> Answer:
    """See `Rank.turn`."""
    return made[0].turn(config)


if __name__ == "__main__":
    serve({"setup": setup, "turn": turn})
    lasting.close()
