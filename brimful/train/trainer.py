"""The training loop. It knows updates, not tasks: an objective says what the loss is.

`Trainer.train_step` makes one update. `Trainer.run` calls it for each update of the stream and acts on its
result; between updates it writes metrics, evaluates and saves checkpoints.
"""

import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from brimful.base.console import pluralise, say, show_progress
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.base.randomness import derive_key
from brimful.base.types import Numbers
from brimful.data.loader import Stream, Update, prefetch
from brimful.model.encoder import Encoder
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import watch_modules
from brimful.runs import checkpoint
from brimful.runs.signals import StoppedError, StopRequest, catch_stop_signals, choose_signal
from brimful.train.compilation import make_loss, resolve_compile
from brimful.train.determinism import deterministic
from brimful.train.freed_memory import keep_freed_memory
from brimful.train.gradients import Gradients
from brimful.train.guard import PATIENCE, Guard, Spike
from brimful.train.journal import Journal
from brimful.train.metrics import Window, count_batches
from brimful.train.objective import Objective, Runtime, Sums, is_better
from brimful.train.state import TrainState
from brimful.train.training import Progress, Training
from brimful.train.utilisation import find_peak_flops


@dataclass(frozen=True)
class StepResult:
    """The result of `train_step`.

    Attributes:
        stop: the number of a signal that asks a rank to stop after this update; 0 without a signal.
        counts: the counts of the update over all ranks, by name.
        means: this rank's part of the mean of each term, as scalars on the device.
        loss, norm: this rank's part of the loss, and the gradient's norm before clipping.
        spike: the loss spike for which the update was left out: the parameters stay, and the next update
            follows.
    """

    stop: int
    counts: Numbers
    means: Sums
    loss: Tensor
    norm: Tensor
    spike: Spike | None


class Trainer:
    """Trains an encoder by an objective on a stream of updates. It can resume where it was killed.

    Args:
        directory: the folder of metrics.jsonl, tensorboard/ and checkpoints/.
        training: the settings, whose identity must be the checkpoint's when training resumes.
    """

    def __init__(
        self,
        encoder: Encoder,
        objective: Objective,
        stream: Stream,
        runtime: Runtime,
        directory: Path,
        training: Training,
    ) -> None:
        if runtime.device.type == "cpu":
            keep_freed_memory()  # before the first large tensors
        config = training.config
        self.encoder = encoder.to(runtime.device)
        self.objective = objective
        self.stream = stream
        self.runtime = runtime
        self.world = runtime.world
        self.directory = directory
        self.training = training
        self.config = training.config
        self.schedule = training.make_schedule()
        for module in objective.frozen().values():
            module.to(runtime.device).eval().requires_grad_(False)

        self.state = TrainState(self.encoder, objective, runtime, config, training.optimizer, training.seed)
        compiled = resolve_compile(config.compile, runtime.device, possible=objective.compiles)
        self.loss = make_loss(objective.loss, self.encoder, compiled=compiled)
        scaler = None
        if runtime.precision == "fp16":
            scaler = AutomaticLossScaler(config.loss_scale)
            watch_modules(self.state.trained, parameters=False)
        is_narrow = config.weights != "fp32"
        self.gradients = Gradients(self.state.trained, runtime.world, mean=is_narrow, scaler=scaler)

        self.guard = Guard(config.spike, config.on_spike, runtime.world)
        self.checkpoints = checkpoint.Writer(directory / "checkpoints", config.keep_checkpoints)
        peak = None
        if not objective.frozen():  # a teacher's flops are not counted
            peak = find_peak_flops(runtime.device, runtime.precision, runtime.world.size)
        self.journal = Journal(directory, runtime.world, peak=peak, shows=training.shows)
        self.request = StopRequest()
        self.progress = Progress(stream.start())
        self.window = Window()
        self.metrics: Numbers = {}
        self.title = ""

    def train_step(self, update: Update) -> StepResult:
        """Make one update: an optimizer step on the mean loss over all micro-batches of all ranks.

        Raises:
            BrimfulError: a micro-batch does not fit in memory.
        """
        config, step = self.config, self.progress.step
        normalizers, counts, micro_batches, stop = self._sum_over_ranks(update)
        means = dict.fromkeys(normalizers, torch.zeros((), device=self.runtime.device))
        self.state.trained.train()
        self.gradients.begin(update.batches, micro_batches)
        try:
            for index, batch in enumerate(update.batches):
                self._seed_dropout(index)
                with self.runtime.autocast():
                    sums = self.gradients.forward(self.loss, batch)
                # Each sum over the normalizer of the whole update: the parts of all micro-batches and ranks
                # add up to its mean, however it is split. CUDA graphs overwrite `sums` in the next pass.
                terms = {name: sums[name] / normalizer for name, normalizer in normalizers.items()}
                self.gradients.backward(self._weigh(terms))
                means = {name: mean + terms[name].detach() for name, mean in means.items()}
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise BrimfulError(f"out of memory at step {step + 1}: {self.stream.advise_smaller()}") from error
        self.gradients.gather()
        loss, norm = self._weigh(means), self.gradients.clip(config.clip)
        spike = self.guard.judge_before_step(step, self.progress.cursor, loss, norm)
        if spike is None:
            self.state.set_rate(self.schedule.rate(step, self.progress.totals.seconds))
            self.gradients.step(self.state.optimizers)
        self.gradients.clear()
        return StepResult(stop, counts, means, loss, norm, spike)

    def _sum_over_ranks(self, update: Update) -> tuple[Numbers, Numbers, int, int]:
        """Sum over ranks what a step needs before it begins, in one small all-reduce.

        Returns:
            the normalizer of each term, the counts by name, the number of micro-batches, and the number of a
            signal that has asked any rank to stop, or 0.
        """
        normalizers = {}
        for term in (*self.objective.coefficients, *self.objective.watched):
            normalizers[term] = sum(of_batch[term] for of_batch in update.normalizers)
        normalizers, counts, others, votes = self.world.sum_each(
            normalizers,
            count_batches(update.batches, self.encoder.config),
            {"micro_batches": len(update.batches)},
            self.request.votes(),
        )
        # An update without any label has a sum of 0: 0 / 1e-30 is 0, and 0 / 0 would be NaN.
        normalizers = {term: max(normalizer, 1e-30) for term, normalizer in normalizers.items()}
        return normalizers, counts, int(others["micro_batches"]), choose_signal(votes)

    def _weigh(self, terms: Sums) -> Tensor:
        """Compute the loss: the sum of the terms, each times its coefficient."""
        coefficients = self.objective.coefficients
        return torch.stack([coefficient * terms[term] for term, coefficient in coefficients.items()]).sum()

    def _seed_dropout(self, micro_batch: int) -> None:
        # From the place in the run: a resumed run draws the same numbers without a saved state.
        step, rank = self.progress.step, self.world.rank
        seed = int(derive_key(self.training.seed, "dropout", step, micro_batch, rank) >> 1)
        # torch.manual_seed makes a stack trace for each kind of device that is absent.
        torch.default_generator.manual_seed(seed)
        if self.runtime.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def run(self, title: str, *, evaluate_first: bool = False) -> Numbers:
        """Train to the last update and evaluate.

        Args:
            title: the title of the progress bar.
            evaluate_first: whether to evaluate before the first update too.

        Returns:
            the objective's metrics.

        Raises:
            BrimfulError: a loss spike that the guard does not leave out, or no memory.
            StoppedError: a signal asked any rank to stop. A run with checkpoints has saved one.
        """
        self.title = title
        config = self.config
        limit = self.world.waits(config.hang_limit)
        with deterministic(config.deterministic), closing(self.journal), limit:
            over = self.schedule.over(self.progress.step, self.progress.totals.seconds)
            if over or self._is_out_of_patience():
                self.metrics = self._evaluate()
                self._is_best(self.metrics)  # a signal may have come between the update and its evaluation
            if not (over or self._is_out_of_patience()):
                if self.world.is_main and self.world.size > 1:
                    _describe_ranks(self.world.size)
                self._train(evaluate_first)
            if config.keeps_best:
                self._return_to_best()
            self.journal.warn_of_waits(title)
        self.gradients.close()
        self.state.finish()
        return self.metrics

    def _train(self, evaluate_first: bool) -> None:
        """Make the remaining updates, and act on the result of each."""
        config, world, done = self.config, self.world, self.progress.step
        self.journal.begin(done)
        if evaluate_first and not done:
            self._describe_evaluation(self.evaluate())
        prefetched = prefetch(
            self.stream,
            self.progress.cursor,
            config.steps - done,
            normalizers=self.objective.normalizers,
            device=self.runtime.device,
            depth=config.prefetch,
        )
        with (
            show_progress(self.title, config.steps, done=done, visible=world.is_main) as advance,
            self.checkpoints,
            catch_stop_signals() as self.request,
            closing(prefetched) as updates,
        ):
            started = time.perf_counter()
            for update in updates:
                result = self.train_step(update)
                self.window.waited += update.waited
                if result.spike:
                    self._leave_out(result.spike)
                last = self._count(update, result, started)
                self._between_updates(last, result.stop)
                if not last and self._is_out_of_patience():
                    last = True
                    if self.window.updates:
                        self._log()
                if result.stop and not last:
                    # Once the checkpoint is on disk: when one rank has ended, torchrun ends the others.
                    self.checkpoints.finish()
                    world.barrier()
                    is_saved = config.checkpoint_every > 0
                    raise StoppedError(result.stop, f"at step {self.progress.step}", is_saved=is_saved)
                advance(1, self.journal.note, self.schedule.left(self.progress.totals.seconds))
                started = time.perf_counter()  # without evaluations and checkpoints
                if last:
                    break

    def _count(self, update: Update, result: StepResult, started: float) -> bool:
        """Count an update that was made or left out, and go to the next. Before a line or a checkpoint, judge
        the losses since the last one.

        On a GPU an update has been launched, not computed. So where something is written, the clock waits for
        the device. In between it lags.

        Args:
            started: the clock when the update began.

        Returns:
            whether the run is over.

        Raises:
            BrimfulError: a loss spike, where the policy is to stop.
        """
        if result.spike is None:
            place = self.progress.step, self.progress.cursor
            self.window.add(place, result.means, result.loss, result.norm)
        self.progress.step += 1
        self.progress.cursor = update.cursor
        due = any(self._list_due(False, result.stop))
        now = self._read_clock(waits=due)
        self._add(result.counts, now - started)
        last = self._is_last()
        if last and not due:  # the hours are over between two lines: the clock waits now, and is right
            self._add({}, self._read_clock(waits=True) - now)
            last = self._is_last()
        if due or last:
            spike = self.guard.judge(self.window)
            if spike is not None:
                self._leave_out(spike)
        return last

    def _read_clock(self, *, waits: bool) -> float:
        """Read the time in seconds; if `waits`, after the device has computed all that was launched."""
        if waits and self.runtime.device.type == "cuda":
            torch.cuda.synchronize(self.runtime.device)
        return time.perf_counter()

    def _add(self, counts: Numbers, seconds: float) -> None:
        self.progress.totals = self.progress.totals.add(counts, seconds)
        self.window.totals = self.window.totals.add(counts, seconds)

    def _is_last(self) -> bool:
        """Whether the run is over. If hours are limited, the main rank's clock decides for all ranks."""
        if self.config.hours:
            own = 0.0  # the other ranks add 0
            if self.world.is_main:
                own = self.progress.totals.seconds
            (seconds,) = self.world.sum([own])
            self.progress.totals = replace(self.progress.totals, seconds=seconds)
        return self.schedule.over(self.progress.step, self.progress.totals.seconds)

    def _list_due(self, last: bool, stop: int) -> tuple[bool, bool, bool]:
        """Whether metrics, an evaluation and a checkpoint are due after the updates so far."""
        config, step = self.config, self.progress.step
        last |= step >= config.steps
        return (
            last or _is_due(step, config.log_every),
            last or _is_due(step, config.evaluate_every),
            last or bool(stop) or _is_due(step, config.checkpoint_every),
        )

    def _between_updates(self, last: bool, stop: int) -> None:
        """Write metrics, evaluate and save, if that is due."""
        logs, evaluates, saves = self._list_due(last, stop)
        if logs and self.window.updates:
            self._log()
        if evaluates:
            if stop:
                self.save()  # before the evaluation: there may be no time to wait for it
            self.metrics = self.evaluate()
            saves |= self._is_best(self.metrics)
            if not last and self.progress.step < self.config.steps:
                self._describe_evaluation(self.metrics)
        if saves:
            self.save()
        self.checkpoints.check()

    def _log(self) -> None:
        means = self.window.average(self.world)
        self.journal.write_training(
            self.progress.step,
            losses={term: means[term] for term in self.objective.coefficients},
            watched={name: means[name] for name in self.objective.watched},
            window=self.window,
            totals=self.progress.totals,
            learning_rate=self.state.learning_rate,
            by_source=self.stream.tokens_by_source(self.progress.cursor),
            scaling=self.gradients.collect_metrics(),
        )
        self.window = Window()

    def evaluate(self) -> Numbers:
        """Evaluate the encoder as it is now; the metrics also go to metrics.jsonl."""
        metrics = self._evaluate()
        self.journal.write_evaluation(self.progress.step, metrics)
        return metrics

    def _evaluate(self) -> Numbers:
        self.state.trained.eval()
        with torch.inference_mode():
            return self.objective.evaluate(self.encoder, self.runtime)

    def _is_best(self, metrics: Numbers) -> bool:
        """Whether these metrics, of this step, are the best so far; then they are remembered."""
        primary, best = self.objective.primary_metric, self.progress.best
        if primary is None or not metrics:
            return False
        value = metrics[primary[0]]
        if not is_better(value, best[1] if best else None, primary):
            return False
        self.progress.best = self.progress.step, value
        return True

    def _describe_evaluation(self, metrics: Numbers) -> None:
        """Say an evaluation's primary metric, and the best so far."""
        primary, best = self.objective.primary_metric, self.progress.best
        if not metrics or primary is None or not self.world.is_main:
            return
        name, step = primary[0], self.progress.step
        line = f"{self.title}: step {step:,}, held-out {name} {metrics[name]:.4g}"
        if best is not None and best[0] == step:
            line += ", the best so far"
        elif best is not None:
            line += f"; the best so far {best[1]:.4g} at step {best[0]:,}"
        say(line)

    def _is_out_of_patience(self) -> bool:
        """Whether none of the last `config.patience` evaluations was better than an earlier one."""
        config, best = self.config, self.progress.best
        limit = config.patience * config.evaluate_every  # updates
        return limit > 0 and best is not None and self.progress.step - best[0] >= limit

    def _return_to_best(self) -> None:
        """Go back to the weights of the best evaluation, and to its metrics."""
        if self.progress.best is None or self.progress.best[0] == self.progress.step:
            return
        best, _ = self.progress.best
        self.checkpoints.finish()
        self.world.barrier()  # the main rank has written it
        self.state.load(checkpoint.load(self.checkpoints.directory, best).tensors)
        if self.world.is_main:
            say(f"the weights of update {best:,} are the best on held-out data")
        self.metrics = self._evaluate()

    def save(self) -> None:
        """Begin to write a checkpoint, on the main rank of a run that has checkpoints."""
        if not (self.config.checkpoint_every and self.world.is_main):
            return
        state = {
            "identity": self.training.identity,
            **self.progress.state_dict(),
            "guard": self.guard.state_dict(),
            "loss_scaling": self.gradients.state_dict(),
            "ranks": self.world.size,
            "versions": checkpoint.package_versions(),
            **self.training.about,
        }
        spared = [self.progress.best[0]] if self.progress.best else []  # from rotation
        self.checkpoints.write(self.progress.step, self.state.tensors(), state, spared)

    def resume(self) -> bool:
        """Go back to the newest checkpoint.

        Returns:
            False if there is no checkpoint; then training starts at the beginning.
        """
        world, folder = self.world, self.checkpoints.directory
        newest = checkpoint.load_for_resume(folder, self.training.identity, world)
        if newest is None:
            return False
        step, tensors, state = newest
        before = state.get("ranks", world.size)
        if world.is_main and before != world.size:
            say(
                f"{pluralise(before, 'rank')} before, {world.size} now: updates hold the same sequences,"
                " and the learning rate stays"
            )
        try:
            self.progress.load_state_dict(step, state)
            self.guard.load_state_dict(state["guard"])
            self.state.load(tensors)
            self.gradients.load_state_dict(state["loss_scaling"])
        except (BrimfulError, KeyError, TypeError, ValueError) as error:
            place = folder / f"step-{step}"
            raise BrimfulError(f"{place} was not written by this run: remove it and resume again") from error
        return True

    def _leave_out(self, spike: Spike) -> None:
        """Record that the update of a spike is left out.

        Raises:
            BrimfulError: the policy is to stop, or too many recent updates were left out.
        """
        before = self.guard.count_left_out(spike)
        action = "stop" if before >= PATIENCE else self.config.on_spike
        self.journal.write_spike(spike, action)
        if action == "stop":
            others = f", and {before} of the updates before it were left out" if before else ""
            raise BrimfulError(
                f"{spike.description}{others}; lower optimizer.learning_rate, or train in fp32 if the run"
                f" uses another precision ({self.journal.locate_batch(spike)})"
            )
        self.guard.left_out.append(spike.update)


@cache  # one command may train several models
def _describe_ranks(size: int) -> None:
    say(
        f"{size} ranks divide each update: an update holds the same on any number of ranks, and the learning"
        " rate is not scaled; if you change the batch, choose it again"
    )


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
