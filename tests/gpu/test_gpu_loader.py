"""Prefetching on a GPU: the same bits, from pinned memory on a stream of its own, whatever the GPU does."""

import time
from contextlib import closing

import numpy as np
import pytest
import torch

from brimful.base.types import IGNORED, Cursor
from brimful.data.batch import PackedBatch
from brimful.data.loader import prefetch
from on_gpu import DEVICE, NEEDS_GPU, masked_row, new_seed

pytestmark = NEEDS_GPU


SLOTS, PREDICTIONS = 65_536, 10_000
TENSORS = ("tokens", "positions", "segments", "offsets", "mlm_positions", "mlm_labels")


class Drawn:
    """A stream of random micro-batches, two an update, of fixed shapes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.taken = 0

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        self.taken += 1
        draw, room = np.random.default_rng([self.seed, cursor["n"]]), {"slots": SLOTS, "sequence_slots": 300}
        lengths = [draw.integers(1, 513, 100) for _ in range(2)]
        batches = [masked_row(draw, each, 30_000, 9_000, PREDICTIONS, **room) for each in lengths]
        return batches, {"n": cursor["n"] + 1}


def normalizers_of(batch: PackedBatch) -> dict[str, float]:
    assert batch.mlm_labels is not None
    assert batch.mlm_labels.device.type == "cpu"
    return {"mlm": float((batch.mlm_labels != IGNORED).sum())}


def busy(milliseconds: float) -> None:
    """Keep the current stream busy; the host goes on at once."""
    torch.cuda._sleep(int(milliseconds * 1.5e6))


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("kernel", [0.0, 20.0])
def test_batches_are_those_of_the_stream(depth, kernel):
    """Each is used late, behind a long kernel, while the next ones are copied and its own memory is given
    back: what is read is still what was sent."""
    seed = new_seed()
    stream = Drawn(seed)
    updates = prefetch(stream, {"n": 0}, 12, normalizers=normalizers_of, device=DEVICE, depth=depth)
    sums, expected = [], []
    for n, update in enumerate(updates):
        batches, _ = Drawn(seed).take({"n": n})
        for batch, weights, host in zip(update.batches, update.normalizers, batches, strict=True):
            assert batch.lengths == host.lengths
            assert weights == normalizers_of(host)
            if kernel:
                busy(kernel)
            for name in TENSORS:
                found, right = getattr(batch, name), getattr(host, name)
                assert found.device.type == "cuda"
                # Computed behind the kernel; no reference to the tensor itself is kept.
                places = torch.arange(1, len(found) + 1, device=DEVICE)
                sums.append((found.long() * places).sum())
                expected.append(int((right.long() * torch.arange(1, len(right) + 1)).sum()))
        del batch, update
    assert torch.stack(sums).tolist() == expected


def test_copies_are_from_pinned_memory_on_another_stream(monkeypatch):
    seed = new_seed()
    found = []
    original = torch.Tensor.to

    def to(tensor: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        if arguments[:1] == (DEVICE,):
            side = torch.cuda.current_stream() != torch.cuda.default_stream()
            found.append((tensor.is_pinned(), side, options))
        return original(tensor, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "to", to)
    list(prefetch(Drawn(seed), {"n": 0}, 2, normalizers=normalizers_of, device=DEVICE))
    assert found == [(True, True, {"non_blocking": True})] * (2 * 2 * len(TENSORS))


def test_copies_go_on_beside_a_kernel():
    """While a kernel runs, updates are made, copied and handed out: no side waits for the whole device."""
    seed = new_seed()
    stream = Drawn(seed)
    with closing(
        prefetch(stream, {"n": 0}, 20, normalizers=normalizers_of, device=DEVICE, depth=2)
    ) as updates:
        held = [next(updates) for _ in range(8)]  # memory for so many, which is used again below
        del held
        torch.cuda.synchronize()
        done = torch.cuda.Event()
        busy(3000)
        done.record()
        taken = stream.taken
        for _ in range(3):
            update = next(updates)
        ends = time.monotonic() + 0.5
        while stream.taken < taken + 3 and time.monotonic() < ends:
            time.sleep(0.01)
        assert stream.taken == taken + 3
        assert not done.query()
        assert update.batches[0].tokens.tolist() == Drawn(seed).take({"n": 10})[0][0].tokens.tolist()
