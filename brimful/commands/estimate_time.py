"""How long the updates of a run take, on any number of ranks."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from brimful.commands.estimate_run import Run
from brimful.errors import BrimfulError
from brimful.estimates.links import Links, traffic
from brimful.estimates.rates import optimizer_seconds, pass_seconds, without_head
from brimful.estimates.scaling import UpdateTime, update_time


@dataclass(frozen=True)
class Course:
    """A run from its first update to its last.

    Attributes:
        phases: sequences' length, seconds and updates of each phase.
        ends_by: hours or steps.
    """

    updates: int
    tokens: float
    seconds: float
    ends_by: str
    phases: list[tuple[int, float, int]]


class Times:
    """Times of a run's passes and updates.

    Args:
        rows: of a micro-batch.
        measured: what `--measure` found, or None: by data sheet.
    """

    def __init__(self, run: Run, rows: int, measured: dict[str, Any] | None) -> None:
        self.run, self.rows, self.measured = run, rows, measured
        if measured is not None:
            return
        if run.assume.mfu is not None:
            run.used |= run.assume.named("mfu")
            return
        names = ("product_share", "attention_forward", "attention_backward", "bandwidth_share")
        run.used |= run.assume.named(*names, "launch_us")
        if not run.compiled(run.trainer):
            run.used |= run.assume.named("uncompiled_traffic")

    @cached_property
    def links(self) -> Links:
        """Between ranks."""
        assume, sheet = self.run.assume, self.run.sheet
        within = 1e9 * assume.link_gb if assume.link_gb else (sheet.link if sheet else 1e9)
        network = sheet.network if sheet else 25e9 / 8
        between = 1e9 / 8 * assume.network_gbit if assume.network_gbit else network
        per_host = assume.per_host or (sheet.per_host if sheet else 1)
        self.run.used |= assume.named(
            "link_share",
            "latency_us",
            "overlap",
            link_gb=within / 1e9,
            network_gbit=8 * between / 1e9,
            per_host=per_host,
        )
        return Links(within, between, assume.link_share, 1e-6 * assume.latency_us, per_host)

    def pass_parts(self, rows: int, phase: int) -> dict[str, float]:
        """Seconds of a pass over a micro-batch by kind of kernel; of a measured rate, as one."""
        run = self.run
        work = run.work(rows, phase)
        if self.measured is not None:
            # Of a phase that was not measured, as much longer as it has more flops.
            own = run.work(self.rows, 0).model_flops(run.shape)
            return {"all": self.measured["seconds_per_pass"] * work.model_flops(run.shape) / own}
        assert run.sheet is not None
        return pass_seconds(
            work,
            run.shape,
            run.model,
            run.trainer,
            run.precision,
            run.sheet,
            run.assume,
            compiled=run.compiled(run.trainer),
        )

    @lru_cache(maxsize=256)  # noqa: B019 - it lives as long as its verb
    def of_update(self, ranks: int, rows: int, phase: int) -> UpdateTime:
        """An update of a phase with `rows` rows on `ranks` ranks."""
        run = self.run
        each = min(self.rows, max(1, -(-rows // ranks)))
        step = 0.0
        if self.measured is None and run.assume.mfu is None and run.sheet is not None:
            step = optimizer_seconds(
                run.model, run.config.optimizer, run.trainer, run.precision, run.sheet, run.assume
            )
        return update_time(
            ranks,
            rows,
            each,
            sum(self.pass_parts(each, phase).values()),
            step,
            traffic(run.model, run.trainer, ranks),
            self.links,
            run.assume.overlap,
        )

    def course(self) -> Course:
        """The whole run, ended by its hours or its steps.

        Raises:
            BrimfulError: not one update fits in the hours.
        """
        run = self.run
        hours = run.config.trainer.hours
        left = 3600 * hours or math.inf
        seconds, tokens, updates, asked, first = 0.0, 0.0, 0, 0, 0.0
        phases: list[tuple[int, float, int]] = []
        for number, (phase, sample) in enumerate(zip(run.phases, run.samples, strict=True)):
            rows = sample.rows_of(phase)
            each = self.of_update(run.ranks, rows, number).seconds
            steps = phase.steps if math.isinf(left) else min(phase.steps, int((left - seconds) / each))
            seconds, tokens = seconds + steps * each, tokens + steps * rows * sample.tokens
            updates, asked, first = updates + steps, asked + phase.steps, first or each
            phases.append((sample.max_length, steps * each, steps))
        if not updates:
            raise BrimfulError(f"not one update fits in {hours:g} hours: it takes {first:.3g} seconds")
        return Course(updates, tokens, seconds, "hours" if updates < asked else "steps", phases)

    def finetuning(self) -> float:
        """Seconds of fine-tuning on one rank, on sequences like those of the data."""
        run = self.run
        run.used |= run.assume.named("finetune_epochs")
        work = run.work(self.rows, run.longest)
        bare = without_head(work).model_flops(run.shape) / work.model_flops(run.shape)
        seconds = sum(self.pass_parts(self.rows, run.longest).values()) * bare
        return run.config.finetune_examples * run.assume.finetune_epochs * seconds / len(work.lengths)
