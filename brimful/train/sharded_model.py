"""A model whose parameters, gradients and optimizer states are divided among ranks by FSDP2.

Each layer's parameters are gathered before its forward and its backward pass and dropped after it; norms and
what is outside the layers are gathered for a whole micro-batch. In an update's last micro-batch, gradients
are summed (not averaged) and divided among the ranks. FSDP2 talks to the other ranks in every pass, so all
ranks make the same number of passes: a rank with fewer micro-batches repeats one with weight 0.

Every parameter is divided by its rows, as FSDP2 does it. AdamW updates a rank's rows where they are. LAMB's
and Muon's parameters travel to the rank that owns them, whole, for the step, and back.

FSDP2 wraps shells around the layers, and not the layers themselves. So a model can be whole and plain for an
evaluation, and after training, by putting its layers and parameters back.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from brimful.data.batch import PackedBatch
from brimful.train.objective import Runtime
from brimful.train.sharding import Piece, give_parts, owners, piece_of, work_on_whole

Loss = Callable[[PackedBatch], dict[str, Tensor]]


class _Shell(nn.Module):
    """What FSDP2 wraps instead of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Any) -> Any:
        return self.layer(*inputs)


class _Root(nn.Module):
    """A micro-batch's forward pass and loss, around which FSDP2 gathers what is outside the layers.

    Norms belong here, also those of layers.
    """

    loss: Loss

    def __init__(self, trained: nn.Module) -> None:
        super().__init__()
        self.trained = trained
        self.norms = nn.ModuleList(each for each in trained.modules() if isinstance(each, nn.LayerNorm))

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        return self.loss(batch)


class ModelShards:
    """The parts of a model that ranks have, and how they make an update together.

    Args:
        trained: the modules, whole, float32, on their device. It is sharded here.
        layers: the encoder's, which are gathered one at a time.
        parameters: those that are trained, by name.
        optimizers: of these parameters, without states; they get this rank's parts.

    Attributes:
        sharded: all parameters of `trained` by name: DTensors, of which this rank has some rows.
        rows: the plan of the parameters.
        plan: the plan of the optimizers' states.
        parts: what this rank's optimizers have, by the name of the parameter.
    """

    def __init__(
        self,
        trained: nn.Module,
        layers: nn.ModuleList,
        parameters: Mapping[str, nn.Parameter],
        optimizers: Sequence[torch.optim.Optimizer],
        runtime: Runtime,
    ) -> None:
        self.runtime = runtime
        self.world = runtime.world
        self.layers = layers
        self._plain_layers = list(layers)
        names: dict[Tensor, str] = {p: name for name, p in trained.named_parameters()}
        work = work_on_whole(optimizers, names)
        self._owner = owners(work, self.world.size)
        self._places = [
            (names[parameter], module, attribute)
            for module in trained.modules()
            for attribute, parameter in module._parameters.items()
            if parameter is not None
        ]
        self._root = _Root(trained)
        self._shells = [_Shell(layer) for layer in layers]
        self._put_layers(self._shells)
        self._shard()
        self.sharded: dict[str, Any] = {
            name: getattr(module, attribute) for name, module, attribute in self._places
        }
        self.rows = {name: _rows(p.shape, self.world.size) for name, p in self.sharded.items()}
        self.plan = {
            name: [Piece(self._owner[name], 0, self.sharded[name].numel())]
            if name in self._owner
            else self.rows[name]
            for name in parameters
        }
        self.parts = {
            name: nn.Parameter(self.local(name)[:0] if name in self._owner else self.local(name))
            for name in parameters
            if any(piece.rank == self.world.rank for piece in self.plan[name])
        }
        give_parts(optimizers, {parameters[name]: part for name, part in self.parts.items()})
        self._trained = list(parameters)
        self._passes = self._made = 0
        self._stand_in: PackedBatch | None = None

    def _shard(self) -> None:
        """Hand the modules to FSDP2.

        The matrices and biases of layers are gathered in the precision of the run, into which autocast would
        turn them. Everything else is gathered in float32: norms compute in it, and the residual stream too.
        """
        mesh = init_device_mesh(self.world.device.type, (self.world.size,))
        wide = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
        policy = wide if self.runtime.precision == "fp32" else replace(wide, param_dtype=self.runtime.dtype)
        outside = set(self._root.norms.parameters())
        for shell in self._shells:
            fully_shard(shell, mesh=mesh, mp_policy=policy, ignored_params=outside)
        fully_shard(self._root, mesh=mesh, mp_policy=wide)
        for module in self._root.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def local(self, name: str) -> Tensor:
        """This rank's rows of a parameter, in the parameter's memory."""
        return self.sharded[name].to_local().detach()

    def wrapped(self, loss: Loss) -> Loss:
        """The loss of a batch, with the parameters gathered for it."""
        self._root.loss = loss

        def gathering(batch: PackedBatch) -> dict[str, Tensor]:
            return self._root(batch)

        return gathering

    def begin(self, batches: Sequence[PackedBatch], total: int) -> None:
        """An update begins.

        Args:
            batches: this rank's micro-batches.
            total: of all ranks; micro-batches are dealt to them in turn.
        """
        self._passes, self._made = -(-total // self.world.size), 0
        self._stand_in = batches[-1] if batches else None
        if total < self.world.size:  # ranks without a micro-batch repeat the main rank's
            given = self.world.from_main(batches[0].to("cpu") if self.world.is_main else None)
            if self._stand_in is None and given is not None:
                self._stand_in = given.to(self.world.device)

    def backward(self, loss: Tensor) -> None:
        """Differentiate one micro-batch's part of the update's loss."""
        self._made += 1
        assert isinstance(self._root, FSDPModule)
        self._root.set_requires_gradient_sync(self._made == self._passes)
        loss.backward()

    def gather(self) -> None:
        """Make the passes that other ranks make. Then each rank has its rows of the summed gradient."""
        while self._made < self._passes:
            assert self._stand_in is not None
            with self.runtime.autocast():
                sums = self._root(self._stand_in)
            self.backward(0.0 * torch.stack([each for each in sums.values() if each.requires_grad]).sum())
        for name in self._trained:
            if self.sharded[name].grad is None:  # no loss reaches it; zeros, as in buckets
                self.sharded[name].grad = torch.zeros_like(self.sharded[name])

    def zero(self) -> None:
        """Drop all gradients."""
        for parameter in (*self.sharded.values(), *self.parts.values()):
            parameter.grad = None

    def close(self) -> None:
        """Drop all gradients."""
        self.zero()

    @contextmanager
    def stepping(self) -> Generator[None]:
        """A context for the optimizers' steps: this rank's parts are there, with their gradients."""
        gradients = {name: self.sharded[name].grad.to_local() for name in self._trained}
        whole_gradients = self._to_owners(gradients)
        whole = self._to_owners({name: self.local(name) for name in self._owner})
        for name, part in self.parts.items():
            if name in self._owner:
                part.data, part.grad = whole[name], whole_gradients[name]
            else:
                part.data, part.grad = self.local(name), gradients[name]
        yield
        self._from_owners()
        for name in whole:
            self.parts[name].data, self.parts[name].grad = self.parts[name].new_empty(0), None

    def _to_owners(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors, of the parameters that this rank owns, from all ranks' rows."""
        sent = [tensors[name].reshape(-1) for name in self._by_owner()]
        received = self._exchange(sent, self._rows_to_owners(), self._rows_from_ranks())
        parts: dict[str, list[Tensor]] = {}
        at = 0
        for rank in range(self.world.size):
            for name in self._owned(self.world.rank):
                count = self._count(name, rank)
                parts.setdefault(name, []).append(received[at : at + count])
                at += count
        return {name: torch.cat(each).view(self.sharded[name].shape) for name, each in parts.items()}

    def _from_owners(self) -> None:
        """Give each rank its rows of the parameters that this rank owns."""
        own = self._owned(self.world.rank)
        sent = [
            self.parts[name].detach().view(-1)[start:stop]
            for rank in range(self.world.size)
            for name in own
            for owner, start, stop in self.rows[name]
            if owner == rank
        ]
        received = self._exchange(sent, self._rows_from_ranks(), self._rows_to_owners())
        at = 0
        for name in self._by_owner():
            local = self.local(name)
            local.copy_(received[at : at + local.numel()].view(local.shape))
            at += local.numel()

    def _exchange(self, sent: Sequence[Tensor], counts: list[int], receives: list[int]) -> Tensor:
        flat = torch.cat([*sent, torch.empty(0, device=self.world.device)])
        received = flat.new_empty(sum(receives))
        dist.all_to_all_single(received, flat, receives, counts)
        return received

    def _owned(self, rank: int) -> list[str]:
        return [name for name, owner in self._owner.items() if owner == rank]

    def _by_owner(self) -> list[str]:
        return [name for rank in range(self.world.size) for name in self._owned(rank)]

    def _count(self, name: str, rank: int) -> int:
        return sum(stop - start for owner, start, stop in self.rows[name] if owner == rank)

    def _rows_to_owners(self) -> list[int]:
        """How many of this rank's numbers each owner takes."""
        ranks = range(self.world.size)
        return [sum(self._count(name, self.world.rank) for name in self._owned(rank)) for rank in ranks]

    def _rows_from_ranks(self) -> list[int]:
        """How many numbers of what this rank owns each rank has."""
        own = self._owned(self.world.rank)
        return [sum(self._count(name, rank) for name in own) for rank in range(self.world.size)]

    def rows_of(self, name: str, value: Tensor) -> Tensor:
        """This rank's rows of a whole tensor, shaped like the parameter of that name."""
        return piece_of(value, self.rows[name], self.world.rank).view(-1, *value.shape[1:])

    def part_of(self, name: str, value: Tensor) -> Tensor:
        """What this rank's optimizers have of a whole tensor, such as a parameter's moment; scalars as they
        are."""
        return value if name in self._owner or value.ndim == 0 else self.rows_of(name, value)

    @contextmanager
    def whole(self) -> Generator[None]:
        """A context in which the modules are plain, with all parameters on every rank. All ranks enter it."""
        self.finish()
        try:
            yield
        finally:
            self._put_layers(self._shells)
            for name, module, attribute in self._places:
                setattr(module, attribute, self.sharded[name])

    def finish(self) -> None:
        """Make the modules plain and whole again. All ranks call it."""
        whole: dict[str, nn.Parameter] = {}
        for name, parameter in self.sharded.items():
            full = parameter.full_tensor().detach().clone()  # it may be a view of padded rows
            whole[name] = nn.Parameter(full, requires_grad=parameter.requires_grad)
        for name, module, attribute in self._places:
            setattr(module, attribute, whole[name])
        self._put_layers(self._plain_layers)

    def _put_layers(self, layers: Sequence[nn.Module]) -> None:
        for index, layer in enumerate(layers):
            self.layers[index] = layer


def _rows(shape: torch.Size, ranks: int) -> list[Piece]:
    """FSDP2's division of a tensor: ranks have as many rows as the first, and the last ones fewer or none."""
    width = shape[1:].numel()
    each = -(-shape[0] // ranks)
    pieces = [
        Piece(rank, rank * each * width, min((rank + 1) * each, shape[0]) * width) for rank in range(ranks)
    ]
    return [piece for piece in pieces if piece.start < piece.stop]
