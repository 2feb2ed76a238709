"""Exact attention of packed sequences, one sequence and one block of queries at a time.

For each sequence softmax(QK^T / sqrt(d)) V is computed by three calls (matrix product, softmax, matrix
product), and by seven in backward, which computes the probabilities again instead of keeping them (Dao et
al. 2022, "FlashAttention", section 3.1, without the tiling of keys): nothing but q, k and v is saved. Blocks
of queries bound the memory to heads * BLOCK * length, and let a sliding window skip the keys out of its
reach. bench/attention.py compares this with F.scaled_dot_product_attention per sequence.

A sequence's result does not depend on its neighbours, to the last bit. The two functions are opaque custom
ops, so that a compiled step stays one graph; lengths travel in a tensor of fixed shape, so that it is not
compiled again for every batch.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from brimful.nn.workers import run, workers

BLOCK = {torch.bfloat16: 256, torch.float16: 256}
"""Queries in a block, 128 where nothing stands here: the scores of a block should stay in the L2 cache."""

LONG = 512
"""Sequences longer than this are several jobs."""


def _blocks(length: int, block: int, reach: int) -> Iterator[tuple[slice, slice]]:
    """Each block of queries of a sequence, and the keys within `reach` of any of them (-1: all keys)."""
    for start in range(0, length, block):
        stop = min(start + block, length)
        if reach < 0:
            yield slice(start, stop), slice(0, length)
        else:
            yield slice(start, stop), slice(max(start - reach, 0), min(stop + reach, length))


def _probabilities(q: Tensor, k: Tensor, queries: slice, keys: slice, scale: float, reach: int) -> Tensor:
    scores = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    scores.baddbmm_(q, k.transpose(1, 2), beta=0, alpha=scale)
    if reach >= 0 and k.shape[1] > reach + 1:
        row = torch.arange(queries.start, queries.stop, device=q.device)[:, None]
        column = torch.arange(keys.start, keys.stop, device=q.device)
        scores.masked_fill_((row - column).abs() > reach, float("-inf"))
    return torch.softmax(scores, -1)


def _jobs(lengths: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views (heads, length, head_dim) of each sequence that is not empty; fewer heads of long ones.

    A long sequence is as many jobs as there are workers, lest it keep one busy and the others waiting.
    """
    sizes = [size for size in lengths.tolist() if size]
    parts = workers()
    for views in zip(*(tensor.transpose(0, 1).split(sizes, 1) for tensor in tensors), strict=True):
        if views[0].shape[1] <= LONG or parts == 1:
            yield views
        else:
            yield from zip(*(view.tensor_split(parts) for view in views), strict=True)


@torch.library.custom_op("brimful::blockwise_attention", mutates_args=())
def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, scale: float, reach: int) -> Tensor:
    """Attention within each sequence of a packed row.

    Args:
        q, k, v: (T, heads, head_dim), any floating type.
        lengths: int64 (S,) on the CPU, tokens of each sequence (0 for an empty one); they sum to T.
        scale: what the scores are multiplied with.
        reach: a token sees the tokens at most `reach` away; -1 for no limit.

    Returns:
        (T, heads, head_dim), contiguous.
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    block = BLOCK.get(q.dtype, 128)

    def job(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        for queries, keys in _blocks(q.shape[1], block, reach):
            p = _probabilities(q[:, queries], k[:, keys], queries, keys, scale, reach)
            torch.bmm(p, v[:, keys], out=out[:, queries])

    run(job, _jobs(lengths, q, k, v, out), device=q.device)
    return out


@blockwise_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, scale: float, reach: int) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@torch.library.custom_op("brimful::blockwise_attention_backward", mutates_args=())
def blockwise_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, scale: float, reach: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, given that of the output; see `blockwise_attention`."""
    d_q, d_k, d_v = (torch.empty_like(q, memory_format=torch.contiguous_format) for _ in range(3))
    block = BLOCK.get(q.dtype, 128)

    def job(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> None:
        length = q.shape[1]
        beta = 0 if length <= block else 1  # a single block writes what several add up
        if beta:
            d_k.zero_()
            d_v.zero_()
        for queries, keys in _blocks(length, block, reach):
            q_i, k_i, grad_i, d_k_i = q[:, queries], k[:, keys], grad[:, queries], d_k[:, keys]
            p = _probabilities(q_i, k_i, queries, keys, scale, reach)
            d_v[:, keys].baddbmm_(p.transpose(1, 2), grad_i, beta=beta)
            d_s = torch.bmm(grad_i, v[:, keys].transpose(1, 2))
            d_s = torch._softmax_backward_data(d_s, p, -1, p.dtype)
            d_q[:, queries].baddbmm_(d_s, k_i, beta=0, alpha=scale)
            d_k_i.baddbmm_(d_s.transpose(1, 2), q_i, beta=beta, alpha=scale)

    run(job, _jobs(lengths, grad, q, k, v, d_q, d_k, d_v), device=q.device)
    return d_q, d_k, d_v


def _save(ctx, inputs, output):
    q, k, v, lengths, ctx.scale, ctx.reach = inputs
    ctx.save_for_backward(q, k, v, lengths)


def _backward(ctx, grad):
    q, k, v, lengths = ctx.saved_tensors
    d_q, d_k, d_v = blockwise_attention_backward(grad, q, k, v, lengths, ctx.scale, ctx.reach)
    return d_q, d_k, d_v, None, None, None


blockwise_attention.register_autograd(_backward, setup_context=_save)


@blockwise_attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, scale: float, reach: int
) -> tuple[Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = (torch.empty_like(q, memory_format=torch.contiguous_format) for _ in range(3))
    return d_q, d_k, d_v
