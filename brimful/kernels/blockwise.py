"""Exact attention of packed sequences, each with the faster kernel for its length.

    fused      ATen's CPU flash attention (online softmax: Milakov & Gimelshein 2018; FlashAttention: Dao et
               al. 2022): float32 and float64, without window and dropout; in 16 bits the forward pass up to
               MAX_FUSED_TOKENS tokens, where it is not grouped
    grouped    many sequences at a time (short_attention.py): bfloat16 on a CPU up to MAX_GROUPED_TOKENS
               tokens, without window and dropout
    explicit   matrix product, softmax, matrix product: everything else

No kernel keeps the probabilities for backward. They are computed again from q and k, and the dropout mask
from its seed. The explicit kernel takes heads and queries in tiles whose scores stay in the cache, and
skips keys outside a window.

A sequence's result does not depend on its neighbours, to the last bit. Forward and backward are opaque custom
ops, so that a compiled step stays one graph. Lengths travel in a tensor of fixed shape, so that a new batch
does not compile again.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from brimful.base.cpu_threads import count_workers, run_jobs
from brimful.kernels import short_attention
from brimful.kernels.bfloat16 import applies
from brimful.kernels.short_attention import TensorRows, make_groups

MAX_GROUPED_TOKENS = 512
"""The longest sequence that is computed in a group with others, in bfloat16 on a CPU."""

MAX_FUSED_TOKENS = 96
"""The longest sequence whose 16-bit forward pass is fused."""

TILE_BYTES = 2 << 20
"""Bytes of scores in a tile: they and the tensors beside them stay in the L2 cache."""

MAX_TILE_QUERIES = 512
"""The most queries in a tile."""

MAX_WINDOWED_QUERIES = 256
"""The most queries in a tile where a window hides most keys: fewer queries waste fewer scores."""

MAX_JOB_TOKENS = 512
"""The longest sequence that is one job; longer ones are split by heads."""

_fused_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _hides(reach: int, length: int) -> bool:
    """Whether a window of `reach` hides any token of a sequence from another."""
    return 0 <= reach < length - 1


def _is_fused(q: Tensor, reach: int, rate: float, *, backward: bool) -> bool:
    """Whether the fused kernel computes a sequence with queries (heads, length, head_dim)."""
    if q.device.type != "cpu" or rate or _hides(reach, q.shape[1]):
        return False
    return q.element_size() >= 4 or (q.shape[1] <= MAX_FUSED_TOKENS and not backward)


def _as_fused(tensor: Tensor) -> Tensor:
    """Return (1, heads, length, head_dim): the fused kernel needs a batch and a contiguous last dimension."""
    return (tensor if tensor.stride(-1) == 1 else tensor.contiguous())[None]


def _tiles(heads: int, length: int, itemsize: int, reach: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield tiles that cover a sequence: heads, queries, and the keys within `reach` of these queries."""
    keys, max_queries = length, MAX_TILE_QUERIES
    if _hides(reach, length):
        keys, max_queries = min(length, MAX_WINDOWED_QUERIES + 2 * reach), MAX_WINDOWED_QUERIES
    else:
        reach = length
    max_queries = max(64, min(max_queries, TILE_BYTES // (keys * itemsize)))
    queries = -(-length // -(-length // max_queries))  # tiles of nearly equal size
    heads_each = max(1, TILE_BYTES // (queries * keys * itemsize))
    for head in range(0, heads, heads_each):
        for start in range(0, length, queries):
            stop = min(start + queries, length)
            visible_keys = slice(max(start - reach, 0), min(stop + reach, length))
            yield slice(head, min(head + heads_each, heads)), slice(start, stop), visible_keys


def _probabilities(q: Tensor, k: Tensor, queries: slice, keys: slice, scale: float, reach: int) -> Tensor:
    """Return the probabilities of a tile: (heads, queries, keys)."""
    scores = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    scores.baddbmm_(q, k.transpose(1, 2), beta=0, alpha=scale)  # the scale costs no pass of its own
    if reach >= 0 and k.shape[1] > reach + 1:
        row = torch.arange(queries.start, queries.stop, device=q.device)[:, None]
        column = torch.arange(keys.start, keys.stop, device=q.device)
        scores.masked_fill_((row - column).abs() > reach, float("-inf"))
    return torch.softmax(scores, -1)


def _dropout_factors(p: Tensor, rate: float, seed: Tensor, token: int, head: int, all_heads: int) -> Tensor:
    """Return the factors of dropout for a tile's probabilities: 0, or 1 / (1 - rate).

    Each head from `head` on has its own random stream, keyed by the tile's first token. It is the same in
    every thread and pass.
    """
    generator = torch.Generator(p.device)
    first_key = int(seed) + token * all_heads + head
    factors = torch.empty_like(p)
    for number, factor in enumerate(factors):
        generator.manual_seed(first_key + number)
        factor.bernoulli_(1 - rate, generator=generator)
    return factors.div_(1 - rate)


def _find_grouped(q: Tensor, lengths: Tensor, scale: float, reach: int, rate: float) -> dict[int, int]:
    """Return first tokens and lengths of the sequences that short_attention.py computes."""
    if not applies(q) or rate or scale <= 0 or not q[0:1].numel():
        return {}
    grouped = {}
    start = 0
    for length in lengths.tolist():
        if 0 < length <= MAX_GROUPED_TOKENS and not _hides(reach, length):
            grouped[start] = length
        start += length
    return grouped


def _jobs(
    lengths: Tensor, grouped: Container[int], *tensors: Tensor
) -> Iterator[tuple[int, int, *tuple[Tensor, ...]]]:
    """Yield first token, first head, and views (heads, length, ...) of each sequence that is not grouped.

    A long sequence is split by heads into one job for each worker, so that no worker waits for another.
    """
    sizes = [size for size in lengths.tolist() if size]
    starts = list(accumulate(sizes, initial=0))[:-1]
    if all(start in grouped for start in starts):  # views of each sequence would cost time
        return
    for token, *views in zip(starts, *(tensor.split(sizes, 1) for tensor in tensors), strict=True):
        if token in grouped:
            continue
        heads, length = views[0].shape[:2]
        heads_each = heads if length <= MAX_JOB_TOKENS else -(-heads // count_workers())
        for head in range(0, heads, heads_each):
            yield token, head, *(view[head : head + heads_each] for view in views)


def attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, window: int | None, dropout: float) -> Tensor:
    """Compute `SequenceLayout.attend`: q, k, v and the result are (T, heads, head_dim)."""
    reach = -1 if window is None else window // 2
    if operator() is _attention and _is_plain((q, k, v), lengths, reach, dropout):
        return _fused_attention(q, k, v, lengths)
    # The seed is drawn here, in torch's own stream, so that a resumed run draws the same masks.
    seed = torch.randint(2**32, ()) if dropout else None
    return operator()(q, k, v, lengths, seed, q.shape[-1] ** -0.5, reach, dropout)[0]


def _is_plain(qkv: Sequence[Tensor], lengths: Tensor, reach: int, rate: float) -> bool:
    """Whether `_fused_attention` applies: float32 on a CPU, one job per sequence, no window or dropout."""
    longest = max(lengths.tolist(), default=0)
    if rate or longest > MAX_JOB_TOKENS or _hides(reach, longest):
        return False
    return all(x.dtype == torch.float32 and x.device.type == "cpu" and x.stride(-1) == 1 for x in qkv)


def _fused_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Compute `_attention` with few operations around the fused kernel: each one slows short texts."""
    out, scale = torch.empty_like(q, memory_format=torch.contiguous_format), q.shape[-1] ** -0.5
    sizes = [size for size in lengths.tolist() if size]
    views = (tensor.transpose(0, 1)[None].split(sizes, 2) for tensor in (q, k, v, out))

    def job(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        out.copy_(_fused_forward(q, k, v, scale=scale)[0])

    run_jobs(job, zip(*views, strict=True), device=q.device)
    return out


def operator() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return `blockwise_attention`, or in inference the function behind it.

    The first call of an operator imports torch's compiler, which takes more than a CPU second.
    """
    is_inference = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
    return _attention if is_inference else blockwise_attention


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor,
    seed: Tensor | None,
    scale: float,
    reach: int,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Compute attention within each sequence of a packed row.

    Args:
        q, k, v: (T, heads, head_dim), any floating type.
        lengths: int64 (S,) on the CPU, tokens of each sequence (0 for an empty one); they sum to T.
        seed: int64 (), on the CPU: decides the mask of dropout; None without dropout.
        scale: factor of the scores.
        reach: a token sees the tokens at most `reach` away; -1 for no limit.
        rate: dropout of the probabilities.

    Returns:
        (T, heads, head_dim), contiguous; and for backward the logarithm of each softmax's normalizer,
        (heads, T) in float32 or float64, written for sequences that the fused or grouped kernel computes.
    """
    out, normalizer = _outputs(q)
    heads, itemsize = q.shape[1], q.element_size()

    def job(token: int, head: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor, normalizer: Tensor) -> None:
        if _is_fused(q, reach, rate, backward=False):
            result, logarithm = _fused_forward(*map(_as_fused, (q, k, v)), scale=scale)
            out.copy_(result[0])
            normalizer.copy_(logarithm[0])
            return
        for tile, queries, keys in _tiles(q.shape[0], q.shape[1], itemsize, reach):
            p = _probabilities(q[tile, queries], k[tile, keys], queries, keys, scale, reach)
            if seed is not None:
                p *= _dropout_factors(p, rate, seed, token + queries.start, head + tile.start, heads)
            torch.bmm(p, v[tile, keys], out=out[tile, queries])

    grouped = _find_grouped(q, lengths, scale, reach, rate)
    if grouped:
        inputs = TensorRows.of(q), TensorRows.of(k), TensorRows.of(v)
        constants = scale, inputs, TensorRows.of(out), normalizer.numpy()
        _run_groups(short_attention.forward, grouped, q, constants)
    views = (tensor.transpose(0, 1) for tensor in (q, k, v, out))  # (heads, T, head_dim)
    run_jobs(job, _jobs(lengths, grouped, *views, normalizer), device=q.device)
    return out, normalizer


def _run_groups(job: Callable[..., None], grouped: dict[int, int], q: Tensor, constants: tuple) -> None:
    groups = make_groups(grouped.items(), *q.shape[1:])
    run_jobs(job, ((*group, *constants) for group in groups), device=q.device)


def _outputs(q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the memory of the output and of the normalizers."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    wide = torch.promote_types(q.dtype, torch.float32)
    return out, q.new_zeros(q.shape[1], q.shape[0], dtype=wide)


blockwise_attention = torch.library.custom_op("brimful::blockwise_attention", mutates_args=())(_attention)


@blockwise_attention.register_fake
def _(q, k, v, lengths, seed, scale, reach, rate):
    return _outputs(q)


@torch.library.custom_op("brimful::blockwise_attention_backward", mutates_args=())
def blockwise_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    normalizer: Tensor,
    lengths: Tensor,
    seed: Tensor | None,
    scale: float,
    reach: int,
    rate: float,
) -> Tensor:
    """Compute the gradients of q, k and v, (T, 3, heads, head_dim), from the gradient of the output."""
    gradients = q.new_empty(q.shape[0], 3, *q.shape[1:])
    heads, itemsize = q.shape[1], q.element_size()

    def job(token: int, head: int, *tensors: Tensor) -> None:
        grad, q, k, v, out, normalizer, d_q, d_k, d_v = tensors
        if _is_fused(q, reach, rate, backward=True):
            inputs = map(_as_fused, (grad, q, k, v, out))
            results = _fused_backward(*inputs, normalizer[None], 0.0, False, scale=scale)
            for gradient, result in zip((d_q, d_k, d_v), results, strict=True):
                gradient.copy_(result[0])
            return
        for tile, queries, keys in _tiles(q.shape[0], q.shape[1], itemsize, reach):
            # A tile has all keys of its queries, so it writes d_q. Tiles that share keys add to d_k and d_v.
            is_only_tile = keys == queries == slice(0, q.shape[1])
            beta = 0 if is_only_tile else 1
            if beta and queries.start == 0:
                d_k[tile] = d_v[tile] = 0
            q_i, k_i, v_i, grad_i = q[tile, queries], k[tile, keys], v[tile, keys], grad[tile, queries]
            p = _probabilities(q_i, k_i, queries, keys, scale, reach)  # (heads, queries, keys)
            d_p = torch.bmm(grad_i, v_i.transpose(1, 2))
            dropped_p = p
            if seed is not None:
                factors = _dropout_factors(p, rate, seed, token + queries.start, head + tile.start, heads)
                dropped_p = p * factors
                d_p *= factors
            d_v[tile, keys].baddbmm_(dropped_p.transpose(1, 2), grad_i, beta=beta)
            d_scores = torch._softmax_backward_data(d_p, p, -1, p.dtype)
            d_q[tile, queries].baddbmm_(d_scores, k_i, beta=0, alpha=scale)
            d_k[tile, keys].baddbmm_(d_scores.transpose(1, 2), q_i, beta=beta, alpha=scale)

    grouped = _find_grouped(q, lengths, scale, reach, rate)
    if grouped:
        inputs = TensorRows.of(k), TensorRows.of(q), TensorRows.of(v), TensorRows.of(grad)
        d_q, d_k, d_v = (TensorRows.of(gradient) for gradient in gradients.unbind(1))
        constants = scale, inputs, normalizer.numpy(), (d_q, d_v, d_k)
        _run_groups(short_attention.backward, grouped, q, constants)
    views = (tensor.transpose(0, 1) for tensor in (grad, q, k, v, out))  # (heads, T, head_dim)
    d_views = (tensor.transpose(0, 1) for tensor in gradients.unbind(1))
    run_jobs(job, _jobs(lengths, grouped, *views, normalizer, *d_views), device=q.device)
    return gradients


@blockwise_attention_backward.register_fake
def _(grad, q, k, v, out, normalizer, lengths, seed, scale, reach, rate):
    return q.new_empty(q.shape[0], 3, *q.shape[1:])


def _save(ctx, inputs, output):
    q, k, v, lengths, seed, ctx.scale, ctx.reach, ctx.rate = inputs
    out, normalizer = output
    ctx.mark_non_differentiable(normalizer)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, out, normalizer, lengths, seed)


def _backward(ctx, grad, _):
    if grad is None:
        return (None,) * 8
    gradients = blockwise_attention_backward(grad, *ctx.saved_tensors, ctx.scale, ctx.reach, ctx.rate)
    return *gradients.unbind(1), *(None,) * 5


blockwise_attention.register_autograd(_backward, setup_context=_save)
