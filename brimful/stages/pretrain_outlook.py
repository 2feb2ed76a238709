"""What `brimful pretrain --dry-run` says of a run before it starts: disk and memory."""

import tempfile
from bisect import bisect
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from brimful.base.console import say
from brimful.base.types import Precision
from brimful.corpus.shards import PARTS, Corpus
from brimful.data.rows import RowStream
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from brimful.precision.policy import DTYPES
from brimful.runs.job import Summary
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import PretrainPlan, make_modules, make_sources, make_stream
from brimful.train.objective import Objective
from brimful.train.step_memory import Held, longest_batch, room_of_a_pass, rows_on_cpu, sizes_of, traced_pass

SIZES = (16, 32, 80)
"""GB of the GPUs that are asked about."""
CONTEXT = 1 << 30
"""Bytes of a GPU that CUDA and its libraries take."""


def expected(plan: PretrainPlan) -> Summary:
    """What a run takes. Plans of blocks are kept in a folder that is then removed."""
    config, corpora, initial, runtime = plan.config, plan.corpora, plan.initial, plan.runtime
    held = Held.of([initial.encoder, initial.head], config.optimizer, config.trainer, runtime.precision)
    with tempfile.TemporaryDirectory(prefix="brimful-") as made:
        make = partial(make_modules, plan, Path(made))
        sources = make_sources(config, corpora, Path(made), ahead=False)
        stream = make_stream(config, sources, plan.reader, fixed_shapes=True, world=runtime.world.size)
        with closing(stream):
            needed = memory(config, stream, make, initial.encoder.config, held, runtime.precision)
    return {
        "dry_run": True,
        "documents": sum(corpus.documents for corpus in corpora.values()),
        "tokens": sum(corpus.tokens for corpus in corpora.values()),
        "parameters": sum(p.numel() for p in initial.encoder.parameters()),
        "disk": disk(config, corpora, held),
        "memory": needed,
    }


def disk(config: PretrainConfig, corpora: dict[str, Corpus], held: Held) -> dict[str, int]:
    """Bytes that a run takes: of its data, its checkpoints, and the models that it starts and ends with."""
    files = (
        corpus.directory / "shards" / f"{shard.name}.{part}"
        for corpus in corpora.values()
        for shard in corpus.shards
        for part in PARTS
    )
    trainer = config.trainer
    checkpoints = (trainer.keep_checkpoints + 1 + trainer.keeps_best) if trainer.checkpoint_every else 0
    return {
        "shards": sum(file.stat().st_size for file in files),
        "checkpoints": checkpoints * (held.weights + held.states),
        "models": 2 * held.weights * 4 // DTYPES[trainer.weights].itemsize,
    }


def memory(
    config: PretrainConfig,
    stream: RowStream,
    make: Callable[[], tuple[Encoder, Objective]],
    shape: EncoderConfig,
    held: Held,
    precision: Precision,
) -> dict[str, Any]:
    """Bytes of one rank with a micro-batch of the longest phase, and which GPUs hold them.

    Args:
        config: its `residual` is resolved.
        stream: of the run, with the shapes of a GPU.
        make: see `traced_pass`.
        precision: resolved.

    Returns:
        `rows_per_micro_batch`: of the run; where the run will choose, the most that the largest GPU holds.
        Bytes of what is held (see `Held`), of the `pass` and in `total`. `holds`: by the GB of a GPU, the
        most rows that it holds, of those that divide the updates, or 0.
    """
    trainer, given = config.trainer, config.rows_per_micro_batch
    if given is None:
        given = rows_on_cpu(stream, shape.hidden_size)
    sizes = sizes_of(stream)

    @lru_cache
    def traced(rows: int) -> int:
        return traced_pass(make, trainer, precision, longest_batch(stream, rows))

    holds = {}
    for size in SIZES:
        room = room_of_a_pass((size << 30) - CONTEXT - (held.total - held.later), held.later)
        holds[str(size)] = ([0, *sizes])[bisect(sizes, room, key=traced)]
    rows = max(*holds.values(), sizes[0]) if given == "auto" else given
    parts = asdict(held) | {"pass": traced(rows)}
    return {"rows_per_micro_batch": rows, **parts, "total": sum(parts.values()), "holds": holds}


def say_outlook(outlook: dict[str, Any], precision: Precision) -> None:
    """Say disk and memory."""
    on_disk, needed = outlook["disk"], outlook["memory"]
    say(
        f"disk: checkpoints {_gb(on_disk['checkpoints'])}, models {_gb(on_disk['models'])}, beside shards of"
        f" {_gb(on_disk['shards'])}"
    )
    rows, holds = needed["rows_per_micro_batch"], needed["holds"]
    say(
        f"memory in {precision}, traced: {_gb(needed['total'])} with micro-batches of {rows} rows:"
        f" {_gb(needed['pass'])} of a pass, {_gb(needed['total'] - needed['pass'])} of weights, gradients and"
        " optimizer"
    )
    fits = ", ".join(f"{size} GB {f'{most} rows' if most else 'none'}" for size, most in holds.items())
    say(f"the most rows of a micro-batch that a GPU holds: {fits}")


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
