"""What fits in memory: how many rows a micro-batch may have, and what to change where none fit."""

from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from brimful.commands.estimate_run import GIB, Run
from brimful.errors import BrimfulError
from brimful.estimates.memory import Held, held, kept_products, traced_pass
from brimful.train.config import TrainerConfig, check_precision
from brimful.train.micro_batch import valid_sizes


class Fit:
    """The memory of a run's fullest rank, for any size of its micro-batches."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def held(self, micro_batches: int, trainer: TrainerConfig | None = None) -> Held:
        """What a rank holds beside a pass."""
        run = self.run
        return held(
            run.model,
            run.config.optimizer,
            trainer or run.trainer,
            run.precision,
            micro_batches=micro_batches,
        )

    def activations(self, rows: int, micro_batches: int, trainer: TrainerConfig | None = None) -> int:
        """Bytes of a pass beside parameters and gradients."""
        run = self.run
        trainer = trainer or run.trainer
        # Gradients have their memory before the first pass of an update.
        has_gradients = run.sheet is not None or run.ranks > 1 or micro_batches > 1
        # What else a trainer has does not matter to a pass, so it is traced once.
        same = replace(run.trainer, recompute=trainer.recompute, weights=trainer.weights)
        taken = self._traced(rows, same, has_gradients)
        if run.sheet is None:
            return taken
        slots = rows * run.samples[run.longest].capacity
        kept = kept_products(run.shape, trainer, slots) if run.compiled(trainer) else 0
        return int(run.assume.memory_factor * taken) + kept

    @lru_cache(maxsize=64)  # noqa: B019 - it lives as long as its verb
    def _traced(self, rows: int, trainer: TrainerConfig, has_gradients: bool) -> int:
        run = self.run
        work = run.work(rows, run.longest)
        traced = traced_pass(
            run.shape,
            run.config.sequences,
            trainer,
            run.precision,
            run.samples[run.longest].batch(work, paired=run.config.sequences.paired),
            has_gradients=has_gradients,
            loss_mean=run.config.loss_mean,
            sampled_softmax=run.config.sampled_softmax,
        )
        return traced.peak - (4 if trainer.weights == "fp32" else 2) * run.model.parameters

    def memory(self, rows: int, micro_batches: int) -> dict[str, int]:
        """Bytes by what they are for, their `total`, and what is `available`."""
        run = self.run
        parts = asdict(self.held(micro_batches)) | {
            "activations": self.activations(rows, micro_batches),
            "process": run.process,
        }
        return parts | {"total": sum(parts.values()), "available": run.room + run.process}

    def excess(self, rows: int, trainer: TrainerConfig | None = None) -> int:
        """By how many bytes micro-batches of `rows` rows exceed the memory; at most 0 if they fit."""
        run, passes = self.run, self._passes(rows)
        rest = self.held(passes, trainer)
        free = run.room - rest.weights - rest.gradients
        needed = self.activations(rows, passes, trainer)
        return int(rest.states + rest.other + needed - (1 - run.assume.head_room) * free)

    def rows(self) -> int:
        """Of a micro-batch on a GPU: as many as were asked for, else the most that fit.

        Raises:
            BrimfulError: not even one row fits; or as many as were asked for do not.
        """
        run, asked = self.run, self.run.config.rows_per_micro_batch
        if isinstance(asked, int):
            self._require(asked, f"rows_per_micro_batch {asked}")
            return asked
        self._require(1, "a micro-batch of one row")
        run.used |= run.assume.named("head_room")
        least = min(run.rows_of(phase) for phase in range(len(run.samples)))
        sizes = valid_sizes(run.phases, max(1, least // run.ranks))
        tried = [sizes[0]]
        for size in sizes[1:]:
            if size >= 2 * tried[-1] or size == sizes[-1]:  # as auto does
                tried.append(size)
        # Traced at one and at eight rows, a pass is known well enough to begin near the end.
        near = len(tried) - 1
        if near > 3:
            one, eight = self.excess(1), self.excess(tried[3])
            slope = (eight - one) / (tried[3] - 1)
            near = max(i for i, size in enumerate(tried) if i == 0 or one + slope * (size - 1) <= 0)
        while near and self.excess(tried[near]) > 0:
            near -= 1
        return tried[near]

    def _passes(self, rows: int) -> int:
        run = self.run
        return max(-(-run.rows_of(phase) // (rows * run.ranks)) for phase in range(len(run.samples)))

    def _require(self, rows: int, what: str) -> None:
        run, over = self.run, self.excess(rows)
        if over <= 0:
            return
        assert run.sheet is not None
        passes = self._passes(rows)
        rest = self.held(passes)
        parts = {
            "weights": rest.weights,
            "gradients": rest.gradients,
            "optimizer states": rest.states,
            "other": rest.other,
            "activations": self.activations(rows, passes),
        }
        named = ", ".join(f"{name} {size / GIB:.3g}" for name, size in parts.items() if size)
        raise BrimfulError(
            f"{what} exceeds the {run.room / GIB:.3g} GiB of a {run.sheet.name} by {over / GIB:.3g} GiB"
            f" ({named} GiB; {run.assume.head_room:.0%} of the rest stays free): {self._cures(rows)}"
        )

    def _cures(self, rows: int) -> str:
        """Settings with which it fits."""
        run, trainer = self.run, self.run.trainer
        tried: list[dict[str, Any]] = []
        if trainer.recompute == "none":
            tried.append({"recompute": "layers"})
        if run.precision == "bf16" and trainer.compression == "none":
            tried.append({"weights": "bf16"})
        found: list[str] = []
        for change in tried:
            try:
                other = replace(trainer, **change)
                check_precision(other, run.precision)
            except BrimfulError:
                continue
            if self.excess(rows, other) <= 0:
                found.append(" and ".join(f"trainer.{name}={value}" for name, value in change.items()))
        sizes = valid_sizes(run.phases, rows // 2)
        smaller = next((size for size in reversed(sizes) if self.excess(size) <= 0), None)
        if smaller:
            found.insert(0, f"rows_per_micro_batch {smaller}")
        if found:
            return f"it fits with {', or '.join(found)}"
        return "lower packing.capacity, or choose a smaller model or more memory"
