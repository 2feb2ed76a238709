"""One rank of bench/sharding, which torchrun starts: python -m bench.sharding.worker FOLDER MODEL UPDATES."""

import json
import statistics
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.train.sides import Beforehand, Job, Model, made_beforehand, open_stream
from brimful.distributed import World, world
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from brimful.train.trainer import Trainer

OPTIMIZERS = ("adamw", "lamb", "muon")
SHARDS = ("none", "optimizer", "model")


def held(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the tensors' memory, each once."""
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors if t is not None]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in local}
    return sum(storages.values())


def measure(
    job: Job, stream: Beforehand, folder: Path, ranks: World, optimizer: str, config: dict[str, Any]
) -> dict[str, Any]:
    """Train, and look at what this rank holds before its last step and how long steps take."""
    model = Model(job)
    trainer = Trainer(
        model.encoder,
        model.objective,
        stream,
        Runtime(ranks, "fp32"),
        folder,
        config=TrainerConfig(steps=job.updates, prefetch=0, **config),
        optimizer=OptimizerConfig(name=optimizer),  # type: ignore[arg-type]
        schedule=ScheduleConfig(shape="constant", warmup=0),
        seed=0,
    )
    state, stepping, update = trainer.state, trainer.state.stepping, trainer.train_step
    steps: list[float] = []
    updates: list[float] = []
    found: dict[str, Any] = {}

    @contextmanager
    def watched() -> Generator[None]:
        ranks.barrier()
        found["gradients"] = held(p.grad for p in state.parameters.values())
        found["parameters"] = held(state._weights().values())
        started = time.perf_counter()
        with stepping():
            yield
        steps.append(time.perf_counter() - started)
        states = [
            value for each in state.optimizers for kept in each.state.values() for value in kept.values()
        ]
        found["states"] = held(value for value in states if isinstance(value, Tensor))

    def timed(*arguments: Any) -> Any:
        ranks.barrier()
        started = time.perf_counter()
        result = update(*arguments)
        updates.append(time.perf_counter() - started)
        return result

    state.stepping = watched  # type: ignore[method-assign]
    trainer.train_step = timed  # type: ignore[method-assign]
    trainer.run("bench")
    return found | {"step": statistics.median(steps[1:]), "update": statistics.median(updates[1:])}


def main() -> None:
    """Measure each optimizer with each layout; the main rank writes the largest of all ranks."""
    folder, model, updates = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with world() as ranks:
        job = Job(model, rows=1, updates=updates, tokens=200_000)
        stream = made_beforehand(open_stream(job, folder, ranks), updates)
        variants: list[tuple[str, dict[str, Any]]] = [(o, {"shard": s}) for o in OPTIMIZERS for s in SHARDS]
        variants += [("adamw", {"compression": c}) for c in ("bf16", "fp16")]
        for number, (optimizer, config) in enumerate(variants):
            found = measure(job, stream, folder / str(number), ranks, optimizer, config)
            each: list[dict[str, float]] = [{}] * ranks.size
            torch.distributed.all_gather_object(each, found)
            if ranks.is_main:
                row = {name: max(rank[name] for rank in each) for name in found}
                row |= {"optimizer": optimizer, **config}
                with (folder / "rows.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
