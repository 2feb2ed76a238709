"""The one training loop. It knows updates, not tasks: an objective says what the loss is."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from brimful.console import progress
from brimful.data.loader import Stream, Update, prefetch
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.runs import checkpoint
from brimful.runs.directory import versions
from brimful.runs.recovery import newest_checkpoint
from brimful.runs.signals import stop_request
from brimful.train.boards import boards
from brimful.train.config import TrainerConfig
from brimful.train.determinism import deterministic
from brimful.train.guard import Guard
from brimful.train.journal import Journal, Spike
from brimful.train.learner import Learner
from brimful.train.metrics import Totals, Window, count_batches
from brimful.train.micro_batch import MicroBatches
from brimful.train.objective import Objective, Runtime, better
from brimful.train.profiling import profiling, span, waiting
from brimful.train.utilisation import peak_flops


class Trainer:
    """Trains an encoder by an objective on a stream of updates, and can go on where it was killed.

    Args:
        directory: where metrics.jsonl, tensorboard/, profile/ and checkpoints/ go.
        cycles: the parts of the run that have a schedule each; by default one.
        seed: decides dropout; data randomness is the stream's own.
        micro_batches: what is done about those of the stream that do not fit; by default that is an error.
        identity: a hash of all that decides the run; a checkpoint of another is refused.
        about: JSON values that checkpoints hold beside it: the configuration.
        shows: a command that shows the batch of an update, but for its number.
    """

    def __init__(
        self,
        encoder: Encoder,
        objective: Objective,
        stream: Stream,
        runtime: Runtime,
        directory: Path,
        *,
        config: TrainerConfig,
        optimizer: OptimizerConfig,
        schedule: ScheduleConfig,
        cycles: Sequence[Cycle] = (),
        seed: int,
        micro_batches: MicroBatches | None = None,
        identity: str = "",
        about: Mapping[str, Any] | None = None,
        shows: str = "",
    ) -> None:
        self.encoder = encoder.to(runtime.device)
        self.objective = objective
        self.stream = stream
        self.runtime = runtime
        self.world = runtime.world
        self.config = config
        self.schedule = Schedule(schedule, cycles or [Cycle(config.steps)], config.hours)
        self.identity = identity
        self.about = dict(about or {})
        for module in objective.frozen().values():
            module.to(runtime.device).eval().requires_grad_(False)
        self.learner = Learner(self.encoder, objective, runtime, config, optimizer, seed)
        self.micro_batches = micro_batches or MicroBatches(self.world)
        self.directory = directory
        self.checkpoints = checkpoint.Writer(directory / "checkpoints", config.keep_checkpoints)
        shown, peak = boards(directory, config.wandb, self.about), peak_flops(runtime, objective)
        self.journal = Journal(directory, shown, peak=peak, writes=self.world.is_main, shows=shows)
        self.guard = Guard(config.spike, config.on_spike, self.world, self.journal)
        self.best: tuple[int, float] | None = None
        self.step = 0
        self.totals = Totals()
        self.cursor = stream.start()
        self._put_back = False

    def run(self, title: str, *, evaluate_first: bool = False) -> dict[str, float]:
        """Train to the last step and evaluate; returns the objective's figures.

        Args:
            title: of the progress that is shown.
            evaluate_first: also before the first update.

        Raises:
            BrimfulError: the loss is not a finite number.
            StoppedError: a signal asked for it, on any rank; if the run has checkpoints, it has left one.
        """
        with deterministic(self.config.deterministic), closing(self.journal):
            figures = self._run(title, evaluate_first)
        self.learner.widen()
        if self.learner.average:
            self.learner.average.apply()
        return figures

    def _run(self, title: str, evaluate_first: bool) -> dict[str, float]:
        config = self.config
        if self.schedule.over(self.step, self.totals.seconds):
            return self._figures()
        self.journal.begin(self.step)
        if evaluate_first and not self.step:
            self.evaluate()
        main, folder = self.world.is_main, self.directory / "profile"
        window = Window()
        figures: dict[str, float] = {}
        with (
            progress(title, config.steps - self.step, shown=main) as advance,
            closing(self._updates()) as updates,
            self.checkpoints,
            stop_request() as asked,
            profiling(config.profile * main, folder, self.runtime.device) as count,
        ):
            started = time.perf_counter()
            for update in waiting("data wait", updates):
                stops = self._update(update, window, asked.number)
                if self._put_back:
                    continue
                self.cursor = update.cursor
                self.step += 1
                spent = time.perf_counter() - started
                self.totals.seconds += spent
                window.totals.seconds += spent
                last = self._is_over()
                logs = last or self.step % config.log_every == 0
                saves = stops or last or _is_due(self.step, config.checkpoint_every)
                evaluates = last or _is_due(self.step, config.evaluate_every)
                if (logs or saves or evaluates) and (spike := self.guard.judge(window)):
                    advance(1 - self._roll_back(spike))
                    window, started = Window(), time.perf_counter()
                    continue
                note = ""
                if logs and window.updates:
                    note, window = self._log(window), Window()
                if stops and evaluates and config.checkpoint_every:
                    self.save()  # there may be no time to wait for figures
                if evaluates:
                    figures = self.evaluate()
                    saves |= self._is_best(figures)
                if saves and config.checkpoint_every:
                    self.save()
                self.checkpoints.check()
                if stops and not last:
                    raise asked.error(self.step, self.directory if config.checkpoint_every else None)
                advance(1, note, self.schedule.left(self.totals.seconds))
                count()
                started = time.perf_counter()
                if last:
                    break
        return figures

    def _updates(self) -> Generator[Update]:
        """The stream's updates from where the run stands; from there once more whenever it was put back."""
        while self.step < self.config.steps:
            self._put_back = False
            made = prefetch(
                self.stream,
                self.cursor,
                self.config.steps - self.step,
                weigh=self.objective.normalizers,
                device=self.runtime.device,
                depth=self.config.prefetch,
            )
            with closing(made):
                for update in made:
                    yield update
                    if self._put_back:
                        break

    def _is_over(self) -> bool:
        """Whether this was the last update. Where the clock decides, it is the main rank's, for all ranks."""
        if self.config.hours:
            (self.totals.seconds,) = self.world.sum([self.totals.seconds if self.world.is_main else 0.0])
        return self.schedule.over(self.step, self.totals.seconds)

    def _update(self, update: Update, window: Window, request: int) -> bool:
        """One optimizer step on the mean loss over all micro-batches of all ranks.

        Args:
            request: 0, or the signal that asked this rank to stop.

        Returns:
            whether any rank was asked.
        """
        terms = (*self.objective.coefficients, *self.objective.watched)
        counts = [sum(normalizers[term] for normalizers in update.normalizers) for term in terms]
        counts += [*count_batches(update.batches, self.encoder.config), len(update.batches), request]
        *counts, micro_batches, requests = self.world.sum(counts)
        window.waited += update.waited
        if self.step in self.guard.left_out:
            return requests > 0
        weights = dict(zip(terms, counts, strict=False))
        step, learner = self.step, self.learner
        make = partial(learner.differentiate, step, update.batches, weights, int(micro_batches))
        means = self.micro_batches.attempt(step, make, learner.gradients.forget)
        if means is None:
            self._put_back = True
            return requests > 0
        loss, norm = learner.gather(means)
        if self.guard.allows(step, self.cursor, loss, norm):
            learner.learn(self.guard.made(step) + 1, self.schedule.rate(step, self.totals.seconds))
            window.add((step, self.cursor), means, loss, norm)
        learner.gradients.forget()
        for totals in (self.totals, window.totals):
            totals.add(counts[len(terms) :])
        return requests > 0

    def _log(self, window: Window) -> str:
        means = window.means(self.world)
        losses = {term: means.pop(term) for term in self.objective.coefficients}
        rate, by_source = self.learner.rate, self.stream.tokens_by_source(self.cursor)
        scaling = self.learner.gradients.metrics()
        return self.journal.training(self.step, losses, means, window, self.totals, rate, by_source, scaling)

    def evaluate(self) -> dict[str, float]:
        """The objective's figures for the encoder as it is now, also written to metrics.jsonl."""
        with span("evaluation"):
            figures = self._figures()
        self.journal.evaluation(self.step, figures)
        return figures

    def _figures(self) -> dict[str, float]:
        average = self.learner.average
        self.learner.trained.eval()
        with average.swapped() if average and self.step else nullcontext(), torch.inference_mode():
            return self.objective.evaluate(self.encoder, self.runtime)

    def _is_best(self, figures: dict[str, float]) -> bool:
        """Whether these figures, of this step, are the best so far; then they are remembered."""
        figure = better(self.objective.judged_by, figures, self.best and self.best[1])
        if figure is not None:
            self.best = self.step, figure
        return figure is not None

    def save(self) -> None:
        """Begin to write a checkpoint: all that this run and what it makes can go on from."""
        if not self.world.is_main:
            return
        with span("checkpoint"):
            state = {
                "identity": self.identity,
                "cursor": self.cursor,
                "totals": asdict(self.totals),
                "guard": self.guard.state_dict(),
                "micro_batches": self.micro_batches.state_dict(),
                "loss_scaling": self.learner.gradients.state_dict(),
                "best": self.best,
                "versions": versions(),
                **self.about,
            }
            spared = [self.best[0]] if self.best else []
            self.checkpoints.write(self.step, self.learner.tensors(), state, spared)

    def resume(self) -> bool:
        """Go back to the newest checkpoint; false if there is none and training starts over."""
        found = newest_checkpoint(self.checkpoints.directory, self.identity, self.world)
        if found is None:
            return False
        self.step, tensors, state = found
        self.cursor, self.best = state["cursor"], state["best"] and tuple(state["best"])
        self.totals = Totals(**state["totals"])
        self.guard.load_state_dict(state["guard"])
        self.micro_batches.load_state_dict(state["micro_batches"])
        self.learner.load(tensors)
        self.learner.gradients.load_state_dict(state["loss_scaling"])
        return True

    def _roll_back(self, spike: Spike) -> int:
        """Leave out an update: go back to the checkpoint before it. Returns how many updates are undone.

        Raises:
            BrimfulError: the policy is another one, there is no checkpoint, or it did not help before.
        """
        before, seconds = self.step, self.totals.seconds
        self.guard.leave_out(spike)
        self.checkpoints.finish()
        self.world.barrier()
        if not self.resume():
            raise BrimfulError(f"{spike.what}, and there is no checkpoint yet to roll back to")
        if self.config.hours:  # which the clock on the wall decides
            self.totals.seconds = seconds
        self.journal.begin(self.step)
        self._put_back = True
        return before - self.step


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
