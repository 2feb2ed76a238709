"""The same bits from the same command: torch's deterministic algorithms, for the duration of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.deterministic
from torch.backends import cudnn

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED_WORKSPACES = (":4096:8", ":16:8")
_memory: Any = torch.utils.deterministic  # Any: torch's types lack its only attribute


@contextmanager
def deterministic(enabled: bool = True) -> Iterator[None]:
    """Enter a context in which torch operations give the same bits for the same input, or raise RuntimeError.

    On CUDA, gradients of embeddings, gathers and scatters are summed by sorting instead of atomic additions.
    FlashAttention's backward pass sums dQ in a fixed order (`_flash_attention_backward` checks this mode;
    FlexAttention has no atomic additions). Inductor uses a fixed tile for reductions instead of the fastest
    one that it measures. cuBLAS has workspaces of fixed sizes; torch reads that setting once, at a process's
    first product on CUDA. If the process has multiplied before, set CUBLAS_WORKSPACE_CONFIG=:4096:8 for it,
    or the first product here raises RuntimeError.

    On exit all settings are restored. Memory from `torch.empty` is not filled with NaN, unlike torch's
    default in this mode.
    """
    if not enabled:
        yield
        return
    mode = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = _memory.fill_uninitialized_memory
    flags = cudnn.deterministic, cudnn.benchmark
    workspace = os.environ.get(WORKSPACE)
    try:
        if workspace not in FIXED_WORKSPACES:
            os.environ[WORKSPACE] = FIXED_WORKSPACES[0]
        torch.use_deterministic_algorithms(True)
        _memory.fill_uninitialized_memory = False
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=only_warns)
        _memory.fill_uninitialized_memory = fill
        cudnn.deterministic, cudnn.benchmark = flags
        if workspace is None:
            os.environ.pop(WORKSPACE, None)
        else:
            os.environ[WORKSPACE] = workspace
