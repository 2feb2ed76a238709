"""One rank of a test in test_precision_ranks.py: precision_rank.py DIRECTORY CASE SEED."""

import copy
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from brimful.precision.narrow import NarrowWeights
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import watch_modules


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))


def distributed(kind: str, module: nn.Module) -> nn.Module:
    wrapped = DistributedDataParallel(module)
    if kind == "compressed":
        wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped


def scaling(kind: str, rank: int) -> dict:
    module = model()
    twin = copy.deepcopy(module)
    seen: list[torch.Tensor] = []
    for parameter in twin.parameters():
        parameter.register_hook(seen.append)
    for layer in list(twin)[1:]:
        layer.register_full_backward_hook(lambda layer, inputs, outputs: seen.extend(inputs))
    module = distributed(kind, module)
    watch_modules(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-9)
    scaler = AutomaticLossScaler()
    result: dict = {"scales": [], "counts": [], "seen": [], "bytes": []}
    reduce = dist.all_reduce

    def spy(tensor: torch.Tensor, *args, **kwargs):
        result["bytes"].append(tensor.nbytes)
        return reduce(tensor, *args, **kwargs)

    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(rank))
    twin(x).square().mean().backward()
    factor = (30_000.0 if rank else 10.0) / max(gradient.abs().max().item() for gradient in seen)
    for _ in range(3):
        seen.clear()
        scale = scaler.get_scale()
        boost = factor / scale  # whatever the scale, rank 1 sees what is near the end of the range
        for last in (False, True):
            with nullcontext() if last else module.no_sync():
                scaler.scale(module(x).square().mean() * boost).backward()
            (twin(x).square().mean() * boost * scale).backward()
        scaler.step(optimizer)
        dist.all_reduce = spy
        scaler.update()
        dist.all_reduce = reduce
        optimizer.zero_grad()
        sizes = torch.cat([gradient.abs().flatten() for gradient in seen])
        result["seen"].append([int((sizes <= 2**13).sum()), int((sizes > 2**13).sum())])
        result["counts"].append(scaler._recent[:2].int().tolist())
        scaler.metrics()
        result["scales"].append(scaler.get_scale())
    result["weights"] = [p.detach().tolist() for p in module.parameters()]
    return result


def narrow(kind: str, rank: int, seed: int) -> dict:
    dtype = getattr(torch, kind)
    module = model().to(dtype)
    start = [p.detach().clone() for p in module.parameters()]
    wrapped = distributed("ddp", module)
    optimizer = NarrowWeights(torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True), seed=seed)
    torch.manual_seed(seed + rank)  # of the batches, and not of the rounding
    for _ in range(6):
        optimizer.zero_grad()
        wrapped(torch.randn(4, 6).to(dtype)).float().square().mean().backward()
        optimizer.step()
    return {
        "weights": [p.tolist() for p in module.parameters()],
        "changed": [not torch.equal(p, old) for p, old in zip(module.parameters(), start, strict=True)],
        "gradients": [p.grad.tolist() for p in module.parameters()],
    }


directory, case, seed, rank = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(os.environ["RANK"])
torch.manual_seed(seed)
dist.init_process_group("gloo")
what, kind = case.split("-")
found = scaling(kind, rank) if what == "scaling" else narrow(kind, rank, seed)
dist.destroy_process_group()
Path(directory, str(rank)).write_text(json.dumps(found))
os._exit(0)  # else an ending process aborts now and then, as PyTorch's threads end after the interpreter
