"""Exponential moving average of the weights (Polyak averaging): often better weights than the last ones."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of the weights after each update, one `age` updates ago weighed by decay**age.

    The weights of that average sum up to 1 from the first update on, as Adam's unbiased moments: what the
    weights were before it has no part. The average is float32.

    Args:
        parameters: by name.
        decay: above 0 and below 1; the average reaches some 1 / (1 - decay) updates back.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.decay = decay
        self._parameters = dict(parameters)
        self._averages = {name: p.detach().float().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Take in the weights after an update, the first of which is number 1."""
        weight = (1 - self.decay) / (1 - self.decay**number)
        weights = [parameter.float() for parameter in self._parameters.values()]
        torch._foreach_lerp_(list(self._averages.values()), weights, weight)

    def apply(self) -> None:
        """Let the parameters be the averages from now on."""
        self._set(self._averages.values())

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Within this context the parameters are the averages, in place; then they are what they were."""
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
        """The averages by name of parameter; not copies."""
        return dict(self._averages)

    @torch.no_grad()
    def load_state_dict(self, averages: Mapping[str, Tensor]) -> None:
        """Go on from what `state_dict` gave; a name that is missing is a KeyError."""
        for name, average in self._averages.items():
            average.copy_(averages[name])
