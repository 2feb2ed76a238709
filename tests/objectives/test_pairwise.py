"""Attention scores against dense computations, in float64, value and gradient."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from brimful.data.batch import PackedBatch
from brimful.objectives import imitation
from brimful.objectives.imitation import attention_score_sum

LENGTHS = (1, 7, 40, 90)


def batch_of(lengths: tuple[int, ...], filler: int = 5) -> PackedBatch:
    """Sequences of these lengths, then one of filler."""
    every = (*lengths, filler) if filler else lengths
    return PackedBatch(
        tokens=torch.zeros(sum(every), dtype=torch.int32),
        positions=torch.cat([torch.arange(length, dtype=torch.int32) for length in every]),
        segments=torch.zeros(sum(every), dtype=torch.uint8),
        offsets=torch.tensor([0, *every], dtype=torch.int32).cumsum(0, dtype=torch.int32),
        lengths=every,
        real_sequences=len(lengths),
        max_length=max(every),
    )


def random_heads(slots: int, heads: int, size: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(slots, heads, size, dtype=torch.float64)


def parts(batch: PackedBatch) -> list[slice]:
    ends = torch.tensor(batch.lengths[: batch.real_sequences]).cumsum(0).tolist()
    return [slice(end - length, end) for end, length in zip(ends, batch.lengths, strict=False)]


def dense_scores(q: Tensor, k: Tensor) -> Tensor:
    """(L, heads, size) -> (heads, L, L), as TinyBERT's code makes them."""
    return torch.einsum("lhd,mhd->hlm", q, k) / q.shape[-1] ** 0.5


@pytest.mark.parametrize(
    ("ours", "theirs"), [((3, 8), (3, 8)), ((4, 6), (4, 16)), ((2, 40), (2, 4)), ((2, 8), (6, 4))]
)
def test_attention_scores_are_those_of_whole_matrices(seed, ours, theirs):
    torch.manual_seed(seed)
    batch = batch_of(LENGTHS)
    slots = len(batch.tokens)
    student = [random_heads(slots, *ours).requires_grad_() for _ in range(2)]
    teacher = [random_heads(slots, *theirs) for _ in range(2)]
    found = attention_score_sum(tuple(student), tuple(teacher), batch)
    expected = torch.zeros((), dtype=torch.float64)
    for part in parts(batch):
        a, b = (dense_scores(q[part], k[part]) for q, k in (student, teacher))
        if ours[0] != theirs[0]:
            a, b = a.mean(0), b.mean(0)
        expected = expected + mse_loss(a, b, reduction="sum")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for one, other in zip(
        torch.autograd.grad(3 * found, student), torch.autograd.grad(3 * expected, student), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
        assert not one[batch.real_tokens :].any()


@pytest.mark.parametrize("gram", [False, True])
def test_bf16_projections_are_compared_in_float32(monkeypatch, seed, gram):
    """A student whose scores differ from its teacher's by 3 %: in bfloat16 the value would cancel."""
    torch.manual_seed(seed)
    monkeypatch.setattr(imitation, "uses_gram", lambda *_: gram)
    batch = batch_of((64,), filler=0)
    teacher = [torch.randn(64, 2, 16, dtype=torch.bfloat16) for _ in range(2)]
    student = [(x + 0.03 * torch.randn(64, 2, 16)).bfloat16().requires_grad_() for x in teacher]
    with torch.autocast("cpu", torch.bfloat16):
        found = attention_score_sum(tuple(student), tuple(teacher), batch)
    wide = [x.detach().double().requires_grad_() for x in student]
    expected = attention_score_sum(tuple(wide), tuple(x.double() for x in teacher), batch)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0)
    for one, other in zip(
        torch.autograd.grad(found, student), torch.autograd.grad(expected, wide), strict=True
    ):
        assert one.dtype == torch.bfloat16  # its rounding is all that is left
        assert (one.double() - other).norm() < 4e-3 * other.norm()
