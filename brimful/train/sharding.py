"""Which rank has which part of a run's state: the optimizers' states alone, or the model too.

    none       every rank has all parameters, gradients and optimizer states
    optimizer  each rank has the optimizer states of its part of the parameters, updates that part, and sends
               it to the others ("ZeRO" stage 1: Rajbhandari et al. 2020)
    model      each rank has its part of everything (train/sharded_model.py)

AdamW works number by number, so what it updates is divided evenly among the ranks. LAMB needs the norm of a
whole matrix and Muon the matrix itself. So each of their parameters belongs to one rank, chosen so that all
ranks have about the same work; Muon's work is divided among the ranks, too.

An optimizer's groups hold this rank's parts instead of parameters. A part is a tensor in the parameter's own
memory, or the parameter itself. The parts of all ranks are a plan that every rank knows. Checkpoints hold
whole tensors, so any number of ranks can read them, sharded or not.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brimful.distributed import World, all_gather
from brimful.optim.muon import Muon
from brimful.train.buckets import ALIGNMENT, round_up


class Piece(NamedTuple):
    """The numbers `start` to `stop` of a flattened tensor, which `rank` has."""

    rank: int
    start: int
    stop: int


Plan = Mapping[str, Sequence[Piece]]
"""The pieces of each tensor by its name, in order, without empty ones: together the whole tensor."""


def work_on_whole(
    optimizers: Sequence[torch.optim.Optimizer], names: Mapping[Tensor, str]
) -> dict[str, float]:
    """The parameters that an optimizer must see whole, and the work that each is: Muon's in products, LAMB's
    in numbers."""
    work = {}
    for optimizer in optimizers:
        for group in [] if isinstance(optimizer, torch.optim.AdamW) else optimizer.param_groups:
            for parameter in group["params"]:
                smaller = 1
                if isinstance(optimizer, Muon):
                    smaller = min(len(parameter) // group["blocks"], parameter.size(1))
                work[names[parameter]] = float(parameter.numel() * smaller)
    return work


def owners(work: Mapping[str, float], ranks: int) -> dict[str, int]:
    """A rank for each name: the largest first, always to the rank with the least work so far."""
    totals = [0.0] * ranks
    chosen = {}
    for name in sorted(work, key=lambda name: -work[name]):
        chosen[name] = min(range(ranks), key=totals.__getitem__)
        totals[chosen[name]] += work[name]
    return chosen


def give_parts(optimizers: Sequence[torch.optim.Optimizer], parts: Mapping[Tensor, Tensor]) -> None:
    """Let new optimizers have parts instead of parameters, and nothing for a parameter without a part."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [parts[p] for p in group["params"] if p in parts]


def gathered(
    world: World,
    own: Mapping[tuple[str, str], Tensor],
    plan: Plan,
    shapes: Mapping[str, torch.Size],
) -> dict[tuple[str, str], Tensor]:
    """Whole tensors in the main rank's memory; nothing on other ranks. All ranks call it.

    Args:
        own: this rank's pieces, float32 on any device, by the name of a parameter and a key; or scalars,
            which all pieces of a parameter share.
        plan: of the parameters.
        shapes: of the parameters.
    """
    known = world.gather({place: value.ndim == 0 for place, value in own.items()})
    scalars = {place: scalar for each in known for place, scalar in each.items()}
    return _received(world, own, plan, shapes, scalars)


def _received(
    world: World,
    own: Mapping[tuple[str, str], Tensor],
    plan: Plan,
    shapes: Mapping[str, torch.Size],
    scalars: Mapping[tuple[str, str], bool],
) -> dict[tuple[str, str], Tensor]:
    """What `gathered` returns, given which of the tensors of all ranks are scalars."""
    found: dict[tuple[str, str], Tensor] = {}
    for place, scalar in sorted(scalars.items()):
        name, _ = place
        if world.is_main:
            found[place] = torch.empty(() if scalar else shapes[name], dtype=torch.float32)
        for rank, start, stop in plan[name][: 1 if scalar else None]:
            numbers = found[place].view(-1)[0 if scalar else start : 1 if scalar else stop] if found else None
            if rank == world.rank:
                piece = own[place].detach().reshape(-1).cpu()
                if numbers is None:
                    dist.send(piece, 0)
                else:
                    numbers.copy_(piece)
            elif numbers is not None:
                dist.recv(numbers, rank)
    return found


def piece_of(value: Tensor, pieces: Sequence[Piece], rank: int) -> Tensor:
    """A rank's piece of a whole tensor, flattened, and perhaps empty; the tensor itself, if the rank has all
    of it or if it is a scalar."""
    start, stop = next(((piece.start, piece.stop) for piece in pieces if piece.rank == rank), (0, 0))
    return value if value.ndim == 0 or stop - start == value.numel() else value.reshape(-1)[start:stop]


class OptimizerShards:
    """Each rank has the optimizer states of its part of the parameters. The parameters move into one tensor.

    Args:
        parameters: those that are trained, float32, by name.
        optimizers: of these parameters, without states; they get this rank's parts.

    Attributes:
        plan: of the optimizers' states.
        parts: this rank's, by the name of the parameter.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        optimizers: Sequence[torch.optim.Optimizer],
        world: World,
    ) -> None:
        self.world = world
        self.parameters = parameters
        owner = owners(work_on_whole(optimizers, {p: name for name, p in parameters.items()}), world.size)
        even = [name for name in parameters if name not in owner]
        whole = sorted(owner, key=owner.__getitem__)
        rooms = {name: round_up(p.numel(), ALIGNMENT) for name, p in parameters.items()}
        share = round_up(sum(rooms[name] for name in even), world.size * ALIGNMENT) // world.size
        first = next(iter(parameters.values()))
        flat = torch.zeros(
            share * world.size + sum(rooms[name] for name in whole), dtype=first.dtype, device=first.device
        )
        self.even = flat[: share * world.size].view(world.size, share)
        self.whole = [flat.new_empty(0)] * world.size
        self.plan: dict[str, list[Piece]] = {}
        at = 0
        for name in even:
            count, begins = parameters[name].numel(), at
            self.plan[name] = [
                Piece(rank, max(0, rank * share - begins), min(count, (rank + 1) * share - begins))
                for rank in range(begins // share, -(-(begins + count) // share))
            ]
            at = self._move(parameters[name], flat, at, rooms[name])
        at = share * world.size
        for rank in range(world.size):
            begins = at
            for name in whole:
                if owner[name] == rank:
                    self.plan[name] = [Piece(rank, 0, parameters[name].numel())]
                    at = self._move(parameters[name], flat, at, rooms[name])
            self.whole[rank] = flat[begins:at]
        self.parts = {
            name: self._part(name, parameter)
            for name, parameter in parameters.items()
            if any(piece.rank == world.rank for piece in self.plan[name])
        }
        give_parts(optimizers, {parameters[name]: part for name, part in self.parts.items()})

    @staticmethod
    def _move(parameter: nn.Parameter, flat: Tensor, at: int, room: int) -> int:
        """Move a parameter into `flat`. Returns where the next one begins."""
        place = flat[at : at + parameter.numel()].view_as(parameter)
        place.copy_(parameter.detach())
        parameter.data = place
        return at + room

    def _part(self, name: str, parameter: nn.Parameter) -> nn.Parameter:
        part = self.part_of(name, parameter.detach())
        return parameter if part.shape == parameter.shape else nn.Parameter(part)

    def part_of(self, name: str, value: Tensor) -> Tensor:
        """This rank's part of a whole tensor, such as a parameter's moment; scalars as they are."""
        return piece_of(value, self.plan[name], self.world.rank)

    @contextmanager
    def stepping(self) -> Generator[None]:
        """A context for the optimizers' steps: parts have their gradients, and at its end all ranks have all
        parameters."""
        for name, part in self.parts.items():
            gradient = self.parameters[name].grad
            if part is not self.parameters[name] and gradient is not None:
                part.grad = self.part_of(name, gradient)
        yield
        sending = [
            dist.broadcast(numbers, rank, async_op=True)
            for rank, numbers in enumerate(self.whole)
            if numbers.numel()
        ]
        if self.even.numel():
            sending.append(all_gather(self.even, self.even[self.world.rank].clone()))
        for each in sending:
            each.wait()

    def finish(self) -> None:
        """Let each parameter have memory of its own again."""
        for parameter in self.parameters.values():
            parameter.data = parameter.data.clone()
