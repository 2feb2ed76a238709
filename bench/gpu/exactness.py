"""What must hold before a measurement counts: attention and a whole step, against float64 on the CPU.

Errors are relative, ||found - exact|| / ||exact||. In 16 bits each number is off by up to 2^-9 = 0.002, and a
step adds up the errors of its layers; in float32 the same sums leave some 1e-6.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.common.ideas import packed_loss
from bench.common.workload import make_sequences, model_config, packed
from brimful.data.batch import PackedBatch
from brimful.errors import BrimfulError
from brimful.model.attention import attend, choose_backend
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import Architecture
from brimful.torch_compile import set_up_compiler

TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-4}
SHAPES: dict[str, list[tuple[int, int | None]]] = {
    "varlen": [(64, None), (26, None), (64, 128)],
    "sdpa": [(64, None), (26, None), (64, 128)],
    "flex": [(64, None)],
}
"""Head sizes and windows of each backend; compiling flex for another one takes long."""
LENGTHS = [1, 5, 300, 64, 33, 2, 128, 511]


def relative_error(found: Tensor, exact: Tensor) -> float:
    """||found - exact|| / ||exact||."""
    return float((found.detach().cpu().double() - exact).norm() / exact.norm())


def formula(qkv: Tensor, lengths: list[int], window: int | None) -> Tensor:
    """softmax(QK' / sqrt(d)) V of each sequence: qkv (T, 3, heads, d) -> (T, heads, d)."""
    outputs = []
    for part in qkv.split(lengths):
        q, k, v = part.permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if window is not None:
            place = torch.arange(len(part))
            scores = scores.masked_fill((place[:, None] - place).abs() > window // 2, -torch.inf)
        outputs.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(outputs)


def attention_error(
    backend: str, dtype: torch.dtype, head_dim: int, window: int | None, device: torch.device
) -> float:
    """The larger of the errors of output and gradient.

    Raises:
        BrimfulError: the backend does not run on this device.
    """
    torch.manual_seed(0)
    layout = choose_backend(device, dtype, backend)
    batch = packed(make_sequences(LENGTHS, 1000, seed=0), max_length=512)
    qkv, upstream = (
        torch.randn(sum(LENGTHS), 3, 2, head_dim).to(dtype),
        torch.randn(sum(LENGTHS), 2, head_dim),
    )
    upstream = upstream.to(dtype)
    exact = qkv.double().requires_grad_()
    reference = formula(exact, LENGTHS, window)
    (expected,) = torch.autograd.grad(reference, exact, upstream.double())
    given = qkv.to(device).requires_grad_()
    q, k, v = given.unbind(1)
    out = attend(q, k, v, layout.prepare(batch.to(device)), window=window)
    (gradient,) = torch.autograd.grad(out, given, upstream.to(device))
    return max(relative_error(out, reference.detach()), relative_error(gradient, expected))


def step_error(
    architecture: Architecture, dtype: torch.dtype, device: torch.device, *, compiled: bool
) -> float:
    """The larger of the errors of the loss and of all gradients together, of a tiny model's step."""
    torch.manual_seed(0)
    encoder = Encoder(model_config("tiny", architecture, vocabulary=1000))
    exact: tuple[Encoder, MaskedLMHead] = copy.deepcopy((encoder, MaskedLMHead(encoder)))
    batch = packed(make_sequences(LENGTHS, 1000, seed=0), max_length=512)
    models = copy.deepcopy(exact)
    for module in exact:
        module.double()
    for module in models:
        module.to(device)
    loss, gradients = _loss_and_gradients(*exact, batch, torch.float64)
    found_loss, found = _loss_and_gradients(*models, batch.to(device), dtype, compiled=compiled)
    return max(relative_error(found_loss, loss), relative_error(found, gradients))


def _loss_and_gradients(
    encoder: Encoder, head: MaskedLMHead, batch: PackedBatch, dtype: torch.dtype, *, compiled: bool = False
) -> tuple[Tensor, Tensor]:
    call = packed_loss(encoder, head)
    if compiled:
        set_up_compiler()
        torch.compiler.reset()
        backend = "inductor" if encoder.device.type == "cuda" else "aot_eager"
        call = torch.compile(call, fullgraph=True, dynamic=False, backend=backend)
    with torch.autocast(encoder.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = call(batch, encoder.prepare(batch), None)
    loss.backward()
    parameters = [*encoder.parameters(), *head.parameters()]
    gradients = [parameter.grad.reshape(-1) for parameter in parameters if parameter.grad is not None]
    return loss.detach().cpu().double(), torch.cat(gradients).cpu().double()


def checks(device: torch.device) -> Iterator[dict[str, Any]]:
    """A row for each check: its error and whether it passed, or why it was skipped or has no error.

    Compiled steps come last, since each takes long.
    """
    yield from _steps(device, compiled=False)
    for backend, shapes in SHAPES.items():
        dtype = torch.float32 if backend == "sdpa" else torch.bfloat16
        for head_dim, window in shapes:
            call = partial(attention_error, backend, dtype, head_dim, window, device)
            yield _row(f"attention {backend}, head size {head_dim}, window {window}", call, dtype)
    yield from _steps(device, compiled=True)


def _steps(device: torch.device, *, compiled: bool) -> Iterator[dict[str, Any]]:
    architectures: tuple[Architecture, ...] = ("modern", "bert")
    for architecture, dtype in product(architectures, TOLERANCE):
        name = f"step {architecture}, {str(dtype).removeprefix('torch.')}{', compiled' * compiled}"
        yield _row(name, partial(step_error, architecture, dtype, device, compiled=compiled), dtype)


def _row(name: str, error: Callable[[], float], dtype: torch.dtype) -> dict[str, Any]:
    try:
        return {"check": name, **_judge(error(), dtype)}
    except BrimfulError as reason:
        return {"check": name, "skipped": str(reason)}
    except Exception as failure:
        return {"check": name, "passed": False, "failed": f"{type(failure).__name__}: {failure}"[:300]}


def _judge(error: float, dtype: torch.dtype) -> dict[str, Any]:
    passed = bool(np.isfinite(error) and error < TOLERANCE[dtype])
    return {"error_of_it": error, "tolerance": TOLERANCE[dtype], "passed": passed}
