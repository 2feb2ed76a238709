"""The one training loop. It knows updates, not tasks: an objective says what the loss is."""

import math
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from brimful import checkpoint
from brimful.console import progress, say
from brimful.data.loader import Stream, Update, prefetch
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.optim.build import OptimizerConfig, build_optimizers
from brimful.optim.ema import WeightAverage
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.randomness import derive_key
from brimful.train.compilation import gradient_buffers, loss_function, resolve_compile
from brimful.train.config import TrainerConfig
from brimful.train.determinism import deterministic
from brimful.train.memory import keep_freed_memory
from brimful.train.metrics import MetricsLog, Totals, Window, count_batches
from brimful.train.objective import Objective, Runtime
from brimful.train.signals import stop_request


class Trainer:
    """Trains an encoder by an objective on a stream of updates, and can go on where it was killed.

    Args:
        directory: where metrics.jsonl and checkpoints/ go.
        cycles: the parts of the run that have a schedule each; by default one.
        seed: decides dropout; data randomness is the stream's own.
        identity: a hash of all that decides the run; a checkpoint of another is refused.
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
        identity: str = "",
    ) -> None:
        self.encoder = encoder.to(runtime.device)
        self.objective = objective
        self.stream = stream
        self.runtime = runtime
        self.world = runtime.world
        self.config = config
        self.schedule = Schedule(schedule, cycles or [Cycle(config.steps)], config.hours)
        self.seed = seed
        self.identity = identity
        self.trained = nn.ModuleDict({"encoder": encoder, **objective.modules()}).to(runtime.device)
        for module in objective.frozen().values():
            module.to(runtime.device).eval().requires_grad_(False)
        self.parameters = {n: p for n, p in self.trained.named_parameters() if p.requires_grad}
        blocks = {f"encoder.{name}": n for name, n in encoder.fused_blocks().items()}
        self.optimizers = build_optimizers(optimizer, self.parameters, blocks, runtime.dtype)
        self.average = WeightAverage(self.parameters, optimizer.ema) if optimizer.ema else None
        compiled = resolve_compile(config.compile, runtime.device, possible=objective.compiles)
        self._loss = loss_function(objective.loss, encoder, runtime.device, compiled=compiled)
        if runtime.device.type == "cpu":
            keep_freed_memory()
        self._keeps_gradients = compiled and runtime.device.type == "cuda"
        if self._keeps_gradients:
            gradient_buffers(self.parameters.values())
        self.directory = directory
        self.checkpoints = checkpoint.Writer(directory / "checkpoints", config.keep_checkpoints)
        self.metrics = MetricsLog(directory / "metrics.jsonl")
        self.step = 0
        self.totals = Totals()
        self.cursor = stream.start()

    def run(self, title: str, *, evaluate_first: bool = False) -> dict[str, float]:
        """Train to the last step and evaluate; returns the objective's figures.

        Args:
            title: of the progress that is shown.
            evaluate_first: whether to evaluate before the first update too.

        Raises:
            BrimfulError: the loss is not a finite number.
            StoppedError: a signal asked for it, on any rank; if the run has checkpoints, it has left one.
        """
        with deterministic(self.config.deterministic):
            figures = self._run(title, evaluate_first)
        if self.average:
            self.average.apply()
        return figures

    def _run(self, title: str, evaluate_first: bool) -> dict[str, float]:
        config = self.config
        complete = self.schedule.over(self.step, self.totals.seconds)
        if self.world.is_main:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.metrics.rewind(self.step or -1)
        if evaluate_first and not self.step:
            self.evaluate()
        shown = progress(title, config.steps - self.step) if self.world.is_main else nullcontext(_ignore)
        window = Window()
        figures: dict[str, float] = {}
        updates = prefetch(
            self.stream,
            self.cursor,
            0 if complete else config.steps - self.step,
            weigh=self.objective.weights,
            device=self.runtime.device,
            depth=config.prefetch,
        )
        with shown as advance, closing(updates), self.checkpoints, stop_request() as request:
            started = time.perf_counter()
            for update in updates:
                asked = self._update(update, window, request.number)
                self.cursor = update.cursor
                self.step += 1
                spent = time.perf_counter() - started
                self.totals.seconds += spent
                window.totals.seconds += spent
                last = self._is_over()
                note = ""
                if self.step % config.log_every == 0 or last:
                    note = self._log(window)
                    window = Window()
                if last or (config.evaluate_every and self.step % config.evaluate_every == 0):
                    figures = self.evaluate()
                if config.checkpoint_every and (self.step % config.checkpoint_every == 0 or last or asked):
                    if window.updates:
                        self._means(window)  # raises, so that no checkpoint holds a NaN
                    self.save()
                self.checkpoints.check()
                if asked and not last:
                    raise request.error(self.step, self.directory if config.checkpoint_every else None)
                started = time.perf_counter()
                advance(1, note)
                if last:
                    break
        return self._figures() if complete else figures

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
        terms = self.objective.coefficients
        counts = [sum(weights[term] for weights in update.weights) for term in terms]
        *counts, requests = self.world.sum([*counts, *count_batches(update.batches), request])
        weights = dict(zip(terms, counts, strict=False))
        self.trained.train()
        for index, batch in enumerate(update.batches):
            torch.manual_seed(int(derive_key(self.seed, "dropout", self.step, index, self.world.rank) >> 1))
            with self.runtime.autocast():
                sums = self._loss(batch)
            means = {term: sums[term] / max(weights[term], 1e-30) for term in terms}
            torch.stack([terms[term] * mean for term, mean in means.items()]).sum().backward()
            window.add(means)
        self.world.sum_gradients(self.parameters.values())
        window.norm = self._clip()
        self.learning_rate = self.schedule.rate(self.step, self.totals.seconds)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * self.learning_rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=not self._keeps_gradients)
        if self.average:
            self.average.update(self.step + 1)
        window.updates += 1
        window.waited += update.waited
        for totals in (self.totals, window.totals):
            totals.add(counts[len(terms) :])
        return requests > 0

    def _clip(self) -> torch.Tensor:
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.config.clip:
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), self.config.clip, norm)
        return norm

    def _means(self, window: Window) -> dict[str, float]:
        """Mean of each term over the window's updates; a rank without micro-batches has no sums."""
        terms = self.objective.coefficients
        means = self.world.sum([float(window.sums.get(term, 0.0)) / window.updates for term in terms])
        if not all(map(math.isfinite, (*means, float(window.norm)))):
            raise BrimfulError(
                f"the loss is not a finite number at step {self.step};"
                " lower optimizer.learning_rate or use fp32"
            )
        return dict(zip(terms, means, strict=True))

    def _log(self, window: Window) -> str:
        losses, by_source = self._means(window), self.stream.tokens_by_source(self.cursor)
        if self.world.is_main:
            self.metrics.write(
                step=self.step,
                **{f"loss.{term}": value for term, value in losses.items()},
                learning_rate=self.optimizers[0].param_groups[0]["lr"],
                gradient_norm=float(window.norm),
                tokens=self.totals.tokens,
                tokens_per_second=self.totals.tokens_per_second,
                seconds=self.totals.seconds,
                fill=window.totals.fill,
                data_wait=window.waited / window.totals.seconds,
                **{f"tokens.{name}": n for name, n in by_source.items() if len(by_source) > 1},
            )
        shown = ", ".join(f"{term} {value:.3f}" for term, value in losses.items())
        rate, fill = self.optimizers[0].param_groups[0]["lr"], window.totals.fill
        speed = f"{self.totals.tokens_per_second:,.0f} tokens/s"
        return f"loss: {shown}; rate {rate:.2e}; {speed}, {fill:.1%} of slots real"

    def evaluate(self) -> dict[str, float]:
        """The objective's figures for the encoder as it is now, also written to metrics.jsonl."""
        figures = self._figures()
        if figures and self.world.is_main:
            self.metrics.write(step=self.step, **{f"validation.{name}": v for name, v in figures.items()})
        return figures

    def _figures(self) -> dict[str, float]:
        self.trained.eval()
        averaged = self.average.swapped() if self.average and self.step else nullcontext()
        with averaged, torch.inference_mode():
            return self.objective.evaluate(self.encoder, self.runtime)

    def save(self) -> None:
        """Begin to write a checkpoint: weights, their average, optimizer states, where the data stands."""
        if self.world.is_main:
            tensors: dict[str, torch.Tensor] = {}
            for name, parameter in self.trained.named_parameters():
                tensors[f"weights.{name}"] = parameter.detach()
            for name, parameter in self.parameters.items():
                for key, value in self._optimizer_state(parameter).items():
                    tensors[f"optimizer.{name}.{key}"] = value
            for name, value in (self.average.state_dict() if self.average else {}).items():
                tensors[f"average.{name}"] = value
            state = {
                "identity": self.identity,
                "cursor": self.cursor,
                "totals": asdict(self.totals),
            }
            self.checkpoints.write(self.step, tensors, state)

    def _optimizer_state(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        return next((o.state[parameter] for o in self.optimizers if parameter in o.state), {})

    def resume(self) -> bool:
        """Go back to the newest checkpoint; false if there is none and training starts over."""
        found = checkpoint.load_latest(self.checkpoints.directory)
        if found is None:
            return False
        self.step, tensors, state = found
        if state["identity"] != self.identity:
            raise BrimfulError(
                f"{self.checkpoints.directory} was made with another configuration or data; start a new run"
            )
        self.cursor, self.totals = state["cursor"], Totals(**state["totals"])
        optimizer_of = {p: o for o in self.optimizers for group in o.param_groups for p in group["params"]}
        with torch.no_grad():
            for name, parameter in self.trained.named_parameters():
                parameter.copy_(tensors.pop(f"weights.{name}"))
        for name, parameter in self.parameters.items():
            prefix = f"optimizer.{name}."
            optimizer_of[parameter].state[parameter] = {
                key.removeprefix(prefix): value.to(self.runtime.device)
                for key, value in tensors.items()
                if key.startswith(prefix)
            }
        if self.average:
            self.average.load_state_dict({name: tensors[f"average.{name}"] for name in self.parameters})
        if self.world.is_main:
            say(f"resuming at step {self.step}")
        return True


def _ignore(steps: int = 1, note: str = "") -> None:
    """Progress on ranks that don't talk."""
