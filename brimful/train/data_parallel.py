"""Several ranks: torch's DistributedDataParallel (DDP) sums gradients over them while backward goes on.

DDP puts gradients into buckets, and gives each bucket to a hook as soon as its last gradient is there; the
layers below are still differentiated meanwhile (Li et al. 2020, "PyTorch Distributed"). What differs here:

    the sum           DDP alone takes the mean over ranks. The hook sums, since each loss is already divided
                      by the normalizer of the whole update.
    every rank        A rank without a micro-batch sends its buckets too, which are zeros.
    every parameter   A parameter that no loss reaches has a gradient of zeros: an optimizer with weight decay
                      shrinks it. So DDP does not search the graph for it.
    final buckets     DDP makes its buckets in the order of the first gradients that come. Here these are
                      zeros, from the last parameter to the first, before training. So a run that is resumed
                      has the buckets, and with them the sums, of the run that was interrupted, and gradients
                      stay where they are, as CUDA graphs need.
"""

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

R = TypeVar("R")

BUCKET_MB = 32.0
"""The approximate size of a bucket in MiB, unless a single parameter is larger."""


class DataParallel:
    """Call `forward` for each micro-batch and differentiate its loss; then `gather`.

    Args:
        modules: the modules that are trained. Each parameter's `.grad` becomes a view of a bucket, and must
            not be replaced.
        ready: a function that gets the number of a bucket that has its gradients, before it is sent.

    Attributes:
        buckets: the gradients of each bucket, 1-D, in the order in which they are sent.
    """

    def __init__(self, modules: nn.Module, ready: Callable[[int], None]) -> None:
        self.buckets: list[Tensor] = []
        self._ready: Callable[[int], None] | None = None
        self._sums: list[Any] = []
        self._parameters = [p for p in modules.parameters() if p.requires_grad]
        self._ddp = DistributedDataParallel(
            _Pass(modules), bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True
        )
        self._ddp.broadcast_buffers = False  # they are constants
        # torch.compile cuts a graph where a bucket ends, and refuses smaller ones.
        self._ddp.bucket_bytes_cap = max(self._ddp.bucket_bytes_cap, dist._DEFAULT_FIRST_BUCKET_BYTES)
        # DDP keeps the hook's state: a proxy, so that the two are not a cycle that holds the gradients.
        self._ddp.register_comm_hook(weakref.proxy(self), DataParallel.receive)
        self._settle()
        self._ready = ready

    def _settle(self) -> None:
        """Let DDP make its buckets. In a pass it learns the order of gradients, and before the next it makes
        them.

        In ten passes before that it measures times, for which the host would wait for a GPU.
        """
        self._ddp._set_ddp_runtime_logging_sample_rate(1 << 30)  # nor once in a while
        for number in range(12):
            self._ddp(lambda _: None, None)
            if number >= 10:  # the first of these makes the buckets, the second one uses them
                self.buckets.clear()
                for parameter in reversed(self._parameters):
                    parameter.backward(torch.zeros_like(parameter))

    def forward(self, loss: Callable[[Any], R], batch: Any, *, last: bool) -> R:
        """Compute `loss(batch)`.

        Args:
            last: whether its backward pass sends the buckets, since the rank has no other micro-batch.
        """
        with nullcontext() if last else self._ddp.no_sync():
            return self._ddp(loss, batch)

    def reach_all(self, loss: Tensor) -> Tensor:
        """Make a loss whose backward pass comes to all parameters. The last loss of an update needs it."""
        return _Reach.apply(loss, *self._parameters)

    def gather(self) -> None:
        """Sum the buckets over ranks. All ranks call it, also those without a micro-batch."""
        while len(self._sums) < len(self.buckets):
            self._send()
        for sending in self._sums:
            sending.wait()  # on a GPU its stream waits, not the host
        self._sums = []

    def receive(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """DDP's hook: a bucket has its gradients.

        DDP waits for the result at the end of backward. The sum is in place, and `gather` waits for it.
        """
        flat = bucket.buffer()
        if self._ready is None:  # before training
            self.buckets.append(flat)
        else:
            self._ready(bucket.index())
            self._send()
        done: Future[Tensor] = Future(devices=[flat.device] if flat.is_cuda else None)
        done.set_result(flat)
        return done

    def _send(self) -> None:
        """Begin to sum the next bucket over ranks."""
        self._sums.append(dist.all_reduce(self.buckets[len(self._sums)], async_op=True))


class _Pass(nn.Module):
    """What DDP wraps: any function of a batch that calls the modules."""

    def __init__(self, modules: nn.Module) -> None:
        super().__init__()
        self.trained = modules

    def forward(self, loss: Callable[[Any], R], batch: Any) -> R:
        return loss(batch)


class _Reach(torch.autograd.Function):
    """The identity on its first argument. Its backward pass comes to the others too, without a gradient."""

    @staticmethod
    def forward(ctx, loss: Tensor, *parameters: Tensor) -> Tensor:
        ctx.count = len(parameters)
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Any:
        return gradient, *[None] * ctx.count
