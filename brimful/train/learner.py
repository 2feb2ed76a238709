"""What learns: weights, optimizers, and the arithmetic of one update."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.nn.encoder import Encoder
from brimful.optim.build import OptimizerConfig, build_optimizers
from brimful.optim.ema import WeightAverage
from brimful.precision.narrow import NarrowWeights
from brimful.precision.policy import DTYPES
from brimful.randomness import derive_key
from brimful.runs.checkpoint import AVERAGE, OPTIMIZER, WEIGHTS
from brimful.train.compilation import loss_function, resolve_compile
from brimful.train.config import TrainerConfig
from brimful.train.gradients import Gradients
from brimful.train.memory import keep_freed_memory
from brimful.train.objective import Objective, Runtime
from brimful.train.profiling import span


class Learner:
    """Makes updates one by one: gradients of the mean loss over all ranks, then the optimizers' step.

    Attributes:
        trained: the encoder and the objective's modules.
        parameters: those of them that are trained, by name.
        optimizers: each parameter has one.
        gradients: what they read.
        average: of the weights, if there is to be one.
        rate: the learning rate of the last update.
    """

    def __init__(
        self,
        encoder: Encoder,
        objective: Objective,
        runtime: Runtime,
        config: TrainerConfig,
        optimizer: OptimizerConfig,
        seed: int,
    ) -> None:
        self.objective = objective
        self.runtime = runtime
        self.clip = config.clip
        self.seed = seed
        self.trained = nn.ModuleDict({"encoder": encoder, **objective.modules()}).to(runtime.device)
        if config.weights != "fp32":
            for parameter in self.trained.parameters():  # not the buffers: angles need their bits
                if parameter.requires_grad:
                    parameter.data = parameter.data.to(DTYPES[config.weights])
        self.parameters = {n: p for n, p in self.trained.named_parameters() if p.requires_grad}
        blocks = {f"encoder.{name}": n for name, n in encoder.fused_blocks().items()}
        self.optimizers = build_optimizers(optimizer, self.parameters, blocks, runtime.dtype)
        if config.weights != "fp32":
            self.optimizers = [
                NarrowWeights(each, config.rounding, int(derive_key(seed, "rounding", index)))
                for index, each in enumerate(self.optimizers)
            ]
        self.average = WeightAverage(self.parameters, optimizer.ema) if optimizer.ema else None
        self.rate = 0.0
        compiled = resolve_compile(config.compile, runtime.device, possible=objective.compiles)
        self._loss = loss_function(objective.loss, encoder, runtime.device, compiled=compiled)
        if runtime.device.type == "cpu":
            keep_freed_memory()
        self.gradients = self._gradients(config, keep=compiled and runtime.device.type == "cuda")

    def _gradients(self, config: TrainerConfig, *, keep: bool) -> Gradients:
        parameters, world = list(self.parameters.values()), self.runtime.world
        if self.runtime.precision != "fp16" and config.weights == "fp32":
            return Gradients(parameters, world, keep=keep)
        # Here, since they import all of torch.distributed, which takes a second.
        from brimful.precision.scaler import AutomaticLossScaler
        from brimful.train.averaged_gradients import Averaged, Scaled

        if self.runtime.precision != "fp16":
            return Averaged(parameters, world)
        scaler = AutomaticLossScaler(config.loss_scale, config.loss_scale_period)
        return Scaled(self.trained, parameters, world, scaler)

    def differentiate(
        self, step: int, batches: Sequence[PackedBatch], weights: Mapping[str, float], micro_batches: int
    ) -> dict[str, Tensor]:
        """Make this rank's part of the gradients of an update.

        Args:
            step: its number, from 0, which decides dropout.
            batches: this rank's micro-batches.
            weights: what each term's sums, and those that are watched, are divided by, that of all ranks.
            micro_batches: of all ranks.

        Returns:
            this rank's share of each of these means: scalars on the device.
        """
        rank = self.runtime.world.rank
        means = dict.fromkeys(weights, torch.zeros((), device=self.runtime.device))
        self.trained.train()
        self.gradients.begin(micro_batches)
        for index, batch in enumerate(batches):
            self._seed(int(derive_key(self.seed, "dropout", step, index, rank) >> 1))
            with span("forward"), self.runtime.autocast():
                sums = self._loss(batch)
            parts = {name: sums[name] / max(weight, 1e-30) for name, weight in weights.items()}
            with span("backward"):
                self.gradients.add(self._total(parts))
            means = {name: mean + parts[name].detach() for name, mean in means.items()}
        return means

    def gather(self, means: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sum the gradients over ranks, and clip them.

        Args:
            means: what `differentiate` returned.

        Returns:
            this rank's share of the loss, and the norm of the gradient before clipping, on the device.
        """
        with span("communication"):
            self.gradients.gather()
        with span("clip"):
            return self._total(means), self.gradients.clip(self.clip)

    def _seed(self, seed: int) -> None:
        """What torch.manual_seed does, without the stack traces it makes for each absent kind of device."""
        torch.default_generator.manual_seed(seed)
        if self.runtime.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _total(self, means: Mapping[str, Tensor]) -> Tensor:
        """The loss."""
        return torch.stack([c * means[term] for term, c in self.objective.coefficients.items()]).sum()

    def learn(self, number: int, rate: float) -> None:
        """Let the optimizers take the gradients in.

        Args:
            number: so many updates are made with this one.
            rate: the factor on their peak rates.
        """
        with span("optimizer"):
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = group["peak"] * rate
            self.gradients.step(self.optimizers)
            if self.average:
                self.average.update(number)
        self.rate = self.optimizers[0].param_groups[0]["lr"]

    def widen(self) -> None:
        """Let 16-bit weights be float32, with what is known of them beyond 16 bits, after the last update."""
        for optimizer in self.optimizers:
            if isinstance(optimizer, NarrowWeights):
                optimizer.widen()

    def tensors(self) -> dict[str, Tensor]:
        """All that training changes, not copies: `weights.NAME`, `optimizer.NAME.KEY`, `average.NAME`."""
        tensors = {f"{WEIGHTS}{name}": p.detach() for name, p in self.trained.named_parameters()}
        for name, parameter in self.parameters.items():
            states: dict[str, Tensor] = next(
                (o.state[parameter] for o in self.optimizers if parameter in o.state), {}
            )
            tensors |= {f"{OPTIMIZER}{name}.{key}": value for key, value in states.items()}
        for name, value in (self.average.state_dict() if self.average else {}).items():
            tensors[f"{AVERAGE}{name}"] = value
        return tensors

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `tensors` gave; a name that is missing is a KeyError."""
        for name, parameter in self.trained.named_parameters():
            parameter.copy_(tensors[f"{WEIGHTS}{name}"])
        optimizer_of = {p: o for o in self.optimizers for group in o.param_groups for p in group["params"]}
        for name, parameter in self.parameters.items():
            prefix = f"{OPTIMIZER}{name}."
            optimizer_of[parameter].state[parameter] = {
                key.removeprefix(prefix): value.to(self.runtime.device)
                for key, value in tensors.items()
                if key.startswith(prefix)
            }
        if self.average:
            self.average.load_state_dict({name: tensors[f"{AVERAGE}{name}"] for name in self.parameters})
