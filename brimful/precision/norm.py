"""The norm of a whole gradient, in float32 whatever its format."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients together, with all shards of sharded ones: a float32 scalar.

    Those of plain gradients share few kernels, and so do shards, whose ranks need one all-reduce.
    """
    plain, norms = [], []
    shards: dict[Any, list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        mesh = getattr(gradient, "device_mesh", None)
        if mesh is not None and mesh.ndim == 1 and gradient.placements[0].is_shard():  # type: ignore[attr-defined]
            shards[mesh].append(gradient.to_local())  # type: ignore[attr-defined]
            continue
        if type(gradient) is Tensor and gradient.layout == torch.strided and not gradient.is_complex():
            plain.append(gradient.float() if gradient.itemsize > 4 else gradient)
            continue
        numbers = gradient.coalesce().values() if gradient.is_sparse else gradient
        norm = torch.linalg.vector_norm(numbers, dtype=torch.float32)
        norms.append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    for mesh, local in shards.items():
        square = torch.stack(torch._foreach_norm(local, 2, dtype=torch.float32)).double().square().sum()
        dist.all_reduce(square, group=mesh.get_group())
        norms.append(square.sqrt().float())
    if plain:
        norms += torch._foreach_norm(plain, 2, dtype=torch.float32)
    return torch.linalg.vector_norm(
        torch.stack([norm.to(norms[-1].device) for norm in norms] or [torch.zeros(())])
    )
