"""What training changes: parameters and the optimizers' states."""

import torch
from torch import nn

from brimful.base.randomness import derive_key
from brimful.model.encoder import Encoder
from brimful.optim.build import build_optimizers
from brimful.optim.config import OptimizerConfig
from brimful.precision.narrow import NarrowWeights
from brimful.precision.policy import DTYPES
from brimful.runs.checkpoint import OPTIMIZER, WEIGHTS
from brimful.train.config import TrainerConfig
from brimful.train.objective import Objective, Runtime, Sums


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
        # Move and convert the modules first: optimizers keep references to the parameters.
        self.trained = nn.ModuleDict({"encoder": encoder, **objective.modules()}).to(runtime.device)
        self.parameters = {name: p for name, p in self.trained.named_parameters() if p.requires_grad}
        is_narrow = config.weights != "fp32"
        if is_narrow:  # buffers, such as RoPE's angles, stay float32
            for parameter in self.parameters.values():
                parameter.data = parameter.data.to(DTYPES[config.weights])
        fused_blocks = {f"encoder.{name}": n for name, n in encoder.fused_blocks().items()}
        depths = {f"encoder.{name}": depth for name, depth in encoder.depths().items()}
        self.optimizers = build_optimizers(optimizer, self.parameters, fused_blocks, runtime.dtype, depths)
        if is_narrow:
            for index, inner in enumerate(self.optimizers):
                key = int(derive_key(seed, "rounding", index))  # different random numbers for each optimizer
                self.optimizers[index] = NarrowWeights(inner, config.rounding, key)

    def set_rate(self, factor: float) -> None:
        """Set the learning rate of each parameter group to its peak rate times `factor`."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor

    @property
    def learning_rate(self) -> float:
        """The first optimizer's learning rate in the last update, without layer_decay."""
        return max(group["lr"] for group in self.optimizers[0].param_groups)

    def finish(self) -> None:
        """Widen 16-bit parameters and the residual stream to float32, after the last update."""
        self.encoder.set_residual(None)
        self.encoder.recomputes = False
        for optimizer in self.optimizers:
            if isinstance(optimizer, NarrowWeights):
                optimizer.widen()

    def tensors(self) -> Sums:
        """The tensors of a checkpoint, not copied: `weights.NAME`, `optimizer.NAME.KEY`."""
        tensors = {f"{WEIGHTS}{name}": weight.detach() for name, weight in self.trained.named_parameters()}
        for optimizer in self.optimizers:
            for name, parameter in self.parameters.items():
                for key, value in optimizer.state.get(parameter, {}).items():
                    tensors[f"{OPTIMIZER}{name}.{key}"] = value
        return tensors

    @torch.no_grad()
    def load(self, tensors: Sums) -> None:
        """Restore the parameters and optimizer states from the tensors of a checkpoint.

        Raises:
            KeyError: a name is missing.
        """
        # Copy in place: compiled steps and flat gradients depend on the parameters' addresses.
        for name, weight in self.trained.named_parameters():
            weight.copy_(tensors[f"{WEIGHTS}{name}"])
        names = {parameter: name for name, parameter in self.parameters.items()}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    prefix = f"{OPTIMIZER}{names[parameter]}."
                    state = {}
                    for key, value in tensors.items():
                        if key.startswith(prefix):
                            state[key.removeprefix(prefix)] = value.to(self.device)
                    optimizer.state[parameter] = state
