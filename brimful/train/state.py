"""What training changes: parameters, the optimizers' states, and the average of the parameters.

With several ranks they may be divided among them (train/sharding.py).
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from brimful.nn.encoder import Encoder
from brimful.optim.build import OptimizerConfig, build_optimizers
from brimful.optim.ema import WeightAverage
from brimful.precision.narrow import NarrowWeights
from brimful.precision.policy import DTYPES
from brimful.randomness import derive_key
from brimful.runs.checkpoint import AVERAGE, OPTIMIZER, WEIGHTS
from brimful.train.config import TrainerConfig
from brimful.train.objective import Objective, Runtime
from brimful.train.sharding import OptimizerShards, gathered

if TYPE_CHECKING:
    from brimful.train.sharded_model import ModelShards

F = TypeVar("F", bound=Callable)


class TrainState:
    """The trained modules, their optimizers, and the average of their parameters.

    Attributes:
        trained: the encoder and the objective's modules.
        parameters: the parameters that are trained, by name.
        optimizers: each parameter belongs to one of them. If states are sharded, they have this rank's parts.
        average: the moving average of the parameters, if there is one; of this rank's rows, if the model is
            sharded.
        model: the shards of the model, if it is sharded.
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
        self.device = runtime.device
        self.world = runtime.world
        self.encoder = encoder
        encoder.set_residual(torch.bfloat16 if config.residual == "bf16" else None)
        encoder.recomputes = config.recompute == "layers"
        self.trained = nn.ModuleDict({"encoder": encoder, **objective.modules()}).to(runtime.device)
        narrow_parameters(self.trained, config)
        self.parameters = {n: p for n, p in self.trained.named_parameters() if p.requires_grad}
        fused_blocks = {f"encoder.{name}": n for name, n in encoder.fused_blocks().items()}
        depths = {f"encoder.{name}": depth for name, depth in encoder.depths().items()}
        self.optimizers = build_optimizers(optimizer, self.parameters, fused_blocks, runtime.dtype, depths)
        if config.weights != "fp32":
            self.optimizers = [
                NarrowWeights(each, config.rounding, int(derive_key(seed, "rounding", index)))
                for index, each in enumerate(self.optimizers)
            ]
        self._names: dict[Tensor, str] = {p: name for name, p in self.parameters.items()}
        self.model: ModelShards | None = None
        self.shards: OptimizerShards | ModelShards | None = None
        if config.shard != "none" and self.world.size > 1:
            self._shard(config, runtime)
        averaged = self.parameters
        if self.model:
            averaged = {name: nn.Parameter(self.model.local(name)) for name in self.parameters}
        self.average = WeightAverage(averaged, optimizer.ema) if optimizer.ema else None

    def _shard(self, config: TrainerConfig, runtime: Runtime) -> None:
        if config.shard == "optimizer":
            self.shards = OptimizerShards(self.parameters, self.optimizers, self.world)
        else:
            from brimful.train.sharded_model import ModelShards  # it imports FSDP, which takes a second

            self.shards = self.model = ModelShards(
                self.trained, self.encoder.layers, self.parameters, self.optimizers, runtime
            )
            self.parameters = {name: self.model.sharded[name] for name in self.parameters}
        self._names = {part: name for name, part in self.shards.parts.items()}

    def wrapped(self, loss: F) -> F:
        """A function of a batch that calls the modules, with what a sharded model needs around it."""
        return self.model.wrapped(loss) if self.model else loss  # type: ignore[return-value]

    def stepping(self) -> AbstractContextManager[None]:
        """A context for the optimizers' steps. At its end all ranks have the result. All ranks enter it."""
        return self.shards.stepping() if self.shards else nullcontext()

    @contextmanager
    def evaluated(self, *, averages: bool) -> Generator[None]:
        """A context in which every rank's modules are as an evaluation needs them. All ranks enter it.

        Args:
            averages: let them have the average of the parameters, if there is one.
        """
        with (
            self.average.swapped() if self.average and averages else nullcontext(),
            self.model.whole() if self.model else nullcontext(),
        ):
            yield

    def set_rate(self, factor: float) -> None:
        """Set the learning rate of each parameter group to its peak rate times `factor`."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last update: of the first optimizer, without layer_decay."""
        return max(group["lr"] for group in self.optimizers[0].param_groups)

    def finish(self) -> None:
        """After the last update: widen 16-bit parameters and the residual stream to float32, and apply the
        average."""
        self.encoder.set_residual(None)
        self.encoder.recomputes = False
        for optimizer in self.optimizers:
            if isinstance(optimizer, NarrowWeights):
                optimizer.widen()
        if self.average:
            self.average.apply()
        if self.shards:
            self.shards.finish()
            self.parameters = {n: p for n, p in self.trained.named_parameters() if p.requires_grad}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint: `weights.NAME`, `optimizer.NAME.KEY`, `average.NAME`.

        They are not copies; but whole copies, on the main rank alone, of what is sharded. All ranks call it.
        """
        states = {
            (self._names[parameter], key): value
            for optimizer in self.optimizers
            for parameter, each in optimizer.state.items()
            for key, value in each.items()
        }
        weights, averages = self._weights(), self.average.state_dict() if self.average else {}
        if self.shards:
            shapes = {name: p.shape for name, p in self.parameters.items()}
            states = gathered(self.world, states, self.shards.plan, shapes)
        if self.model:
            weights, averages = self._gathered(weights), self._gathered(averages)
        return (
            {f"{WEIGHTS}{name}": value for name, value in weights.items()}
            | {f"{OPTIMIZER}{name}.{key}": value for (name, key), value in states.items()}
            | {f"{AVERAGE}{name}": value for name, value in averages.items()}
        )

    def _weights(self) -> dict[str, Tensor]:
        """All parameters, by name, in their own memory: whole, or this rank's rows."""
        if self.model:
            return {name: self.model.local(name) for name in self.model.sharded}
        return {name: parameter.detach() for name, parameter in self.trained.named_parameters()}

    def _gathered(self, local: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on the main rank, by name, of each rank's rows."""
        assert self.model
        shapes = {name: p.shape for name, p in self.model.sharded.items()}
        own = {(name, ""): value for name, value in local.items()}
        found = gathered(self.world, own, self.model.rows, shapes)
        return {name: value for (name, _), value in found.items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `tensors`, whole ones on every rank, whether or not they were sharded when they were saved.

        Raises:
            KeyError: a name is missing.
        """
        rows = self.model.rows_of if self.model else lambda name, value: value
        part = self.shards.part_of if self.shards else lambda name, value: value
        for name, weight in self._weights().items():
            weight.copy_(rows(name, tensors[f"{WEIGHTS}{name}"]))
        for optimizer in self.optimizers:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                name = self._names[parameter]
                prefix = f"{OPTIMIZER}{name}."
                optimizer.state[parameter] = {
                    key.removeprefix(prefix): part(name, value).to(self.device, copy=bool(self.shards))
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }
        if self.average:
            self.average.load_state_dict(
                {name: rows(name, tensors[f"{AVERAGE}{name}"]) for name in self.parameters}
            )


def narrow_parameters(trained: nn.Module, config: TrainerConfig) -> None:
    """Give the parameters that are trained the run's format. Buffers, such as RoPE's angles, stay float32."""
    for parameter in trained.parameters():
        if parameter.requires_grad and config.weights != "fp32":
            parameter.data = parameter.data.to(DTYPES[config.weights])
