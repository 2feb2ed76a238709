"""Exponential moving average of the weights (Polyak averaging), often better than the last weights."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of the parameters after each update. An update `age` updates ago counts decay**age.

    These factors are normalised to sum to 1 from the first update on, as in Adam's unbiased moments, so the
    initial parameters do not count. The average is float32.

    Args:
        parameters: by name.
        decay: above 0 and below 1. The average covers about 1 / (1 - decay) updates.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.decay = decay
        self._parameters = dict(parameters)
        self._averages = {name: p.detach().float().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Add the parameters after an update. The first update has number 1."""
        weight = (1 - self.decay) / (1 - self.decay**number)
        weights = [parameter.float() for parameter in self._parameters.values()]
        torch._foreach_lerp_(list(self._averages.values()), weights, weight)

    def apply(self) -> None:
        """Set the parameters to the averages."""
        self._set(self._averages.values())

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """A context in which the parameters are the averages, in place. On exit they are restored."""
        kept = [parameter.detach().clone() for parameter in self._parameters.values()]
        self.apply()
        try:
            yield
        finally:
            self._set(kept)

    @torch.no_grad()
    def _set(self, values: Iterable[Tensor]) -> None:
        torch._foreach_copy_(list(self._parameters.values()), list(values))

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by the parameters' names, not copies."""
        return dict(self._averages)

    @torch.no_grad()
    def load_state_dict(self, averages: Mapping[str, Tensor]) -> None:
        """Restore a `state_dict`.

        Raises:
            KeyError: a name is missing.
        """
        for name, average in self._averages.items():
            average.copy_(averages[name])
