"""Products of inference in int8 on a CPU: oneDNN's, of 8-bit activations and weights, summed in 32 bits.

The inputs of a product are rounded to 256 steps of one size, which calibration has found (`Steps`), after
each channel was divided by a factor of its own that the weights are multiplied with (Xiao et al. 2023,
"SmoothQuant", section 4). Each output of the weights has a step of its own. So the numbers of a text depend
neither on the texts beside it nor on the number of threads. Without VNNI and AMX weights have seven bits, so
that no sum of two products saturates, and all but the products is in float32.
"""

import torch
from torch import Tensor, nn

from brimful.base.errors import NotFiniteError
from brimful.kernels import bfloat16
from brimful.model.drawing import Linear
from brimful.model.int8_rounding import Steps, rounded_weights


class IntegerWeights:
    """A module's weights as 8-bit integers, laid out for oneDNN.

    Attributes:
        steps: of the inputs.
        factors: float32 (in,), what inputs are multiplied by before they are rounded.
    """

    @classmethod
    def of(cls, linear: Linear) -> "IntegerWeights":
        """Those of a module, which it keeps until its weights or steps are others.

        Raises:
            NotFiniteError: a weight is NaN or infinite.
        """
        state = (linear.steps, linear.weight.data_ptr(), linear.weight._version)
        if linear.integers is None or linear.integers[0] != state:
            linear.integers = state, cls(linear, linear.steps)
        return linear.integers[1]

    def __init__(self, linear: nn.Linear, steps: Steps) -> None:
        self.steps = steps
        weight = linear.weight.detach().float()
        if not weight.isfinite().all():  # integers would hide it
            raise NotFiniteError
        integers, self.sizes = rounded_weights(weight, steps)
        self.packed = torch.ops.onednn.qlinear_prepack(integers, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = linear.bias
        ones = torch.ones(weight.shape[1]) if steps.factors is None else steps.factors
        self.factors = (1 / (ones * steps.size)).numpy()

    def rounded(self, x: Tensor) -> Tensor:
        """Inputs, bfloat16 or float32 (T, in), as uint8."""
        return bfloat16.integers(x, self.factors, self.steps.zero)

    def product(
        self, x: Tensor, activation: str, dtype: torch.dtype, reader: "IntegerWeights | None" = None
    ) -> Tensor:
        """The activation of x W' + b: (T, out), or rounded for the product that reads it alone.

        Args:
            x: what `rounded` gives.
            reader: has no factors.
        """
        size, zero = 1.0, 0
        if reader is not None:
            size, zero, dtype = reader.steps.size, reader.steps.zero, torch.uint8
        weights = self.packed, self.sizes, self.zeros, self.bias
        return torch.ops.onednn.qlinear_pointwise(
            x, self.steps.size, self.steps.zero, *weights, size, zero, dtype, activation, [], "none"
        )
