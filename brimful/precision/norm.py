"""The norm of a whole gradient, in float32 whatever its format."""

from collections.abc import Sequence

import torch
from torch import Tensor


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients together, with all shards of sharded ones: a float32 scalar.

    Those of plain gradients share few kernels.
    """
    plain, norms = [], []
    for gradient in gradients:
        if type(gradient) is Tensor and gradient.layout == torch.strided and not gradient.is_complex():
            plain.append(gradient.float() if gradient.itemsize > 4 else gradient)
            continue
        numbers = gradient.coalesce().values() if gradient.is_sparse else gradient
        norm = torch.linalg.vector_norm(numbers, dtype=torch.float32)
        norms.append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    if plain:
        norms += torch._foreach_norm(plain, 2, dtype=torch.float32)
    return torch.linalg.vector_norm(
        torch.stack([norm.to(norms[-1].device) for norm in norms] or [torch.zeros(())])
    )
