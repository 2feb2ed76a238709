"""What training changes: parameters and the optimizers' states."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from brimful.base.randomness import derive_key
from brimful.model.encoder import Encoder
from brimful.optim.build import build_optimizers
from brimful.optim.config import OptimizerConfig
from brimful.precision.narrow import NarrowWeights
from brimful.precision.policy import DTYPES
from brimful.runs.checkpoint import OPTIMIZER, WEIGHTS
from brimful.train.config import TrainerConfig
from brimful.train.objective import Objective, Runtime


class TrainState:
    """The trained modules and their optimizers.

    Attributes:
        trained: the encoder and the objective's modules.
        parameters: the parameters that are trained, by name.
        optimizers: each parameter belongs to one of them.
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
        """After the last update: widen 16-bit parameters and the residual stream to float32."""
        self.encoder.set_residual(None)
        self.encoder.recomputes = False
        for optimizer in self.optimizers:
            if isinstance(optimizer, NarrowWeights):
                optimizer.widen()

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint: `weights.NAME`, `optimizer.NAME.KEY`. They are no copies."""
        states = {
            (self._names[parameter], key): value
            for optimizer in self.optimizers
            for parameter, each in optimizer.state.items()
            for key, value in each.items()
        }
        weights = {f"{WEIGHTS}{name}": value for name, value in self._weights().items()}
        return weights | {f"{OPTIMIZER}{name}.{key}": value for (name, key), value in states.items()}

    def _weights(self) -> dict[str, Tensor]:
        """All parameters, by name, in their own memory."""
        return {name: parameter.detach() for name, parameter in self.trained.named_parameters()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `tensors`.

        Raises:
            KeyError: a name is missing.
        """
        for name, weight in self._weights().items():
            weight.copy_(tensors[f"{WEIGHTS}{name}"])
        for optimizer in self.optimizers:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                name = self._names[parameter]
                prefix = f"{OPTIMIZER}{name}."
                optimizer.state[parameter] = {
                    key.removeprefix(prefix): value.to(self.device)
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }


def narrow_parameters(trained: nn.Module, config: TrainerConfig) -> None:
    """Give the parameters that are trained the run's format. Buffers, such as RoPE's angles, stay float32."""
    for parameter in trained.parameters():
        if parameter.requires_grad and config.weights != "fp32":
            parameter.data = parameter.data.to(DTYPES[config.weights])
