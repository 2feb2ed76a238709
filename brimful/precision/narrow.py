"""Parameters in 16 bits under any optimizer, which sees them and their gradients in float32.

The optimizer steps for a few parameters at a time, and their float32 copies are dropped before the next ones
are made. So there is no float32 copy of all parameters, which would take 4 bytes each. Rounding decides how
an update smaller than the spacing of the 16-bit format survives:

    stochastic  at random, without bias (`round_stochastically`)
    kahan       16 more bits keep the rounding error and are added the next time: 2 bytes (Zamirai et al.
                2020, "Revisiting BFloat16 Training")
    master      float32 parameters are kept after all: 4 bytes (Micikevicius et al. 2018, section 3.1)
    nearest     it is lost: late in training, parameters stop moving. For comparison.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key
from brimful.base.types import Rounding, Values
from brimful.precision.gradients import grad_scale, is_skipped, list_parameters, require_dense
from brimful.precision.rounding import round_stochastically

CHUNK_ELEMENTS = 4 << 20
"""Elements whose weights and gradients are float32 at a time: 32 MiB. A larger parameter is one chunk."""
_NARROW_DTYPES = (torch.bfloat16, torch.float16)
_OWN_STATES = ("roundings", "compensation", "master")
"""States of `NarrowWeights`, which the inner optimizer does not see."""


_Member = tuple[Values, int, Tensor]
"""The group of a parameter, its number among all parameters, and the parameter."""


class NarrowWeights(torch.optim.Optimizer):
    """An optimizer that keeps 16-bit parameters in 16 bits, while an inner optimizer steps in float32.

    Parameters in other formats go to the inner optimizer as they are. `NarrowWeights` takes scaled
    gradients, by torch's contract (see `brimful.precision.scaler`), whether or not the inner optimizer does.
    States are the inner optimizer's, in float32. Besides, `state[parameter]` holds "roundings" (how often the
    parameter was rounded, part of the next key), "compensation" or "master". The inner optimizer must treat
    each parameter independently: its `step` and step hooks run once per chunk, on tensors that stand for the
    parameters.

    Args:
        optimizer: the inner optimizer, new, with the parameters. This optimizer takes over its groups.
        rounding: see the beginning of this file.
        seed: the seed of stochastic rounding, the same on all ranks, different for each optimizer.

    Raises:
        BrimfulError: the optimizer has made a step, parameters are sharded, or the rounding is unknown.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self, optimizer: torch.optim.Optimizer, rounding: Rounding = "stochastic", seed: int = 0
    ) -> None:
        if rounding not in get_args(Rounding):
            raise BrimfulError(f"rounding is one of {', '.join(get_args(Rounding))}, not {rounding!r}")
        if optimizer.state:
            raise BrimfulError("NarrowWeights needs an optimizer that has no state yet; wrap it once made")
        for parameter in list_parameters(optimizer.param_groups):
            require_dense(parameter)
        self.optimizer, self.rounding, self.seed = optimizer, rounding, seed
        super().__init__(optimizer.param_groups, optimizer.defaults)
        optimizer.param_groups = self.param_groups

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient. If `found_inf` is not 0, nothing changes."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if is_skipped(self):
            return loss
        divisor = grad_scale(self)
        if divisor is not None and getattr(self.optimizer, "_step_supports_amp_scaling", False):
            self.optimizer.grad_scale, divisor = divisor, None  # type: ignore[attr-defined]
        members: list[_Member] = []
        all_parameters = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            for parameter in group["params"]:
                members.append((group, len(members), parameter))
        try:
            for chunk in _chunks(members):
                self._step_chunk(chunk, divisor)
        finally:  # put back what `_step_chunk` exchanged, also after an error
            for group, parameters in zip(self.param_groups, all_parameters, strict=True):
                group["params"] = parameters
            self.optimizer.param_groups = self.param_groups
            self.optimizer.state.clear()
            vars(self.optimizer).pop("grad_scale", None)
        return loss

    @torch.no_grad()
    def widen(self) -> None:
        """Make 16-bit parameters float32, with the further bits of a master copy or a compensation."""
        for parameter in list_parameters(self.param_groups):
            if parameter.dtype in _NARROW_DTYPES:
                parameter.data = self._widened(parameter, self.state.get(parameter, {}))

    def __getstate__(self) -> Values:
        own = {"optimizer": self.optimizer, "rounding": self.rounding, "seed": self.seed}
        return super().__getstate__() | own

    def load_state_dict(self, state_dict: Values) -> None:
        """Load a state as torch does, but keep the format of its tensors.

        torch would convert them to the format of the parameters, which is 16 bits.
        """
        super().load_state_dict(state_dict)
        self.optimizer.param_groups = self.param_groups
        indices, parameters = map(list_parameters, (state_dict["param_groups"], self.param_groups))
        for index, parameter in zip(indices, parameters, strict=True):
            for key, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, Tensor) and key != "step":  # torch has its own rule for that one
                    self.state[parameter][key] = value.to(parameter.device, copy=True)

    def _step_chunk(self, chunk: list[_Member], divisor: Tensor | None) -> None:
        """Let the inner optimizer step for some parameters, in whose place it sees float32 tensors."""
        for group in self.param_groups:
            group["params"] = []
        stand_ins = []
        for group, _, parameter in chunk:
            state = self.state[parameter]
            stand_in = self._widened(parameter, state)
            assert parameter.grad is not None
            stand_in.grad = parameter.grad.to(stand_in.dtype)
            if divisor is not None:  # not in place, since a float32 parameter shares its gradient
                stand_in.grad = stand_in.grad / divisor.to(parameter.grad.device)
            inner_state = dict(state)
            self.optimizer.state[stand_in] = inner_state
            for name in _OWN_STATES:
                inner_state.pop(name, None)
            group["params"].append(stand_in)
            stand_ins.append(stand_in)
        self.optimizer.param_groups = [group for group in self.param_groups if group["params"]]
        self.optimizer.step()
        for (_, number, parameter), stand_in in zip(chunk, stand_ins, strict=True):
            own_state = {}
            if parameter.dtype in _NARROW_DTYPES:
                own_state = self._narrow(parameter, stand_in, number)
            self.state[parameter] = self.optimizer.state.pop(stand_in) | own_state

    def _widened(self, parameter: Tensor, state: Values) -> Tensor:
        """Return the tensor for the inner optimizer: float32, or the memory of the parameter itself."""
        if parameter.dtype not in _NARROW_DTYPES:
            return parameter.detach()
        if "master" in state:
            return state["master"].detach()
        wide = parameter.detach().float()
        if "compensation" in state:
            wide.add_(state["compensation"])
        return wide

    def _narrow(self, parameter: Tensor, wide: Tensor, number: int) -> dict[str, Tensor]:
        """Round into the parameter, and return the state that is kept beside it."""
        if self.rounding == "stochastic":
            # A number of its own for each rounding: the same bits twice would round the same way twice.
            roundings = int(self.state[parameter].get("roundings", 0))
            key = int(derive_key(self.seed, "rounding", roundings, number))
            parameter.copy_(round_stochastically(wide, parameter.dtype, key))
            return {"roundings": torch.tensor(roundings + 1)}
        parameter.copy_(wide)
        if self.rounding == "kahan":
            return {"compensation": wide.sub_(parameter).to(parameter.dtype)}
        return {"master": wide.detach()} if self.rounding == "master" else {}


def _chunks(members: Iterable[_Member]) -> Iterator[list[_Member]]:
    """Yield the members with a gradient, in order, in chunks that are float32 together."""
    chunk: list[_Member] = []
    elements = 0
    for member in members:
        parameter = member[2]
        if parameter.grad is None:
            continue
        if chunk and elements + parameter.numel() > CHUNK_ELEMENTS:
            yield chunk
            chunk, elements = [], 0
        chunk.append(member)
        elements += parameter.numel()
    if chunk:
        yield chunk
