"""Exact attention of packed sequences, each with the faster kernel for its length.

    fused      ATen's CPU flash attention (Dao et al. 2022): float32 and float64, without window and dropout;
               in 16 bits the forward pass up to FUSED_TOKENS tokens, where it is not grouped
    grouped    many sequences at a time (short_attention.py): bfloat16 on a CPU up to GROUPED tokens, without
               window and dropout
    explicit   matrix product, softmax, matrix product: everything else

No kernel keeps the probabilities for backward. They are computed again from q and k, and the dropout mask
from its seed. The explicit kernel takes heads and queries in tiles whose scores stay in the cache, and
skips keys outside a window.

A sequence's result does not depend on its neighbours, to the last bit. The two functions are opaque custom
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
from brimful.kernels.short_attention import TensorRows, groups

GROUPED = 512
"""The longest sequence that is computed in a group with others, in bfloat16 on a CPU."""

FUSED_TOKENS = 96
"""The longest sequence whose 16-bit forward pass is fused."""

SCORES = 2 << 20
"""Bytes of scores in a tile: they and the tensors beside them stay in the L2 cache."""

QUERIES = 512
"""The most queries in a tile."""

WINDOWED_QUERIES = 256
"""The most queries in a tile where a window hides most keys: fewer queries waste fewer scores."""

ONE_JOB_TOKENS = 512
"""Longer sequences are split into several jobs."""

_fused_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _hides(reach: int, length: int) -> bool:
    """Whether a window of `reach` hides any token of a sequence from another."""
    return 0 <= reach < length - 1


def _is_fused(q: Tensor, reach: int, rate: float, *, backward: bool) -> bool:
    """Whether the fused kernel computes a sequence with queries (heads, length, head_dim)."""
    if q.device.type != "cpu" or rate or _hides(reach, q.shape[1]):
        return False
    return q.element_size() >= 4 or (q.shape[1] <= FUSED_TOKENS and not backward)


def _as_fused(tensor: Tensor) -> Tensor:
    """(heads, length, head_dim) -> (1, ...). The fused kernel needs a contiguous last dimension."""
    return (tensor if tensor.stride(-1) == 1 else tensor.contiguous())[None]


def _tiles(heads: int, length: int, itemsize: int, reach: int) -> Iterator[tuple[slice, slice, slice]]:
    """Tiles that cover a sequence: heads, queries, and the keys within `reach` of these queries."""
    hides = _hides(reach, length)
    seen = min(length, WINDOWED_QUERIES + 2 * reach) if hides else length
    most = max(64, min(WINDOWED_QUERIES if hides else QUERIES, SCORES // (seen * itemsize)))
    queries = -(-length // -(-length // most))
    group = max(1, SCORES // (queries * seen * itemsize))
    for head in range(0, heads, group):
        for start in range(0, length, queries):
            stop = min(start + queries, length)
            first, last = (max(start - reach, 0), min(stop + reach, length)) if hides else (0, length)
            yield slice(head, min(head + group, heads)), slice(start, stop), slice(first, last)


def _probabilities(q: Tensor, k: Tensor, queries: slice, keys: slice, scale: float, reach: int) -> Tensor:
    scores = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    scores.baddbmm_(q, k.transpose(1, 2), beta=0, alpha=scale)
    if reach >= 0 and k.shape[1] > reach + 1:
        row = torch.arange(queries.start, queries.stop, device=q.device)[:, None]
        column = torch.arange(keys.start, keys.stop, device=q.device)
        scores.masked_fill_((row - column).abs() > reach, float("-inf"))
    return torch.softmax(scores, -1)


def _factors(p: Tensor, rate: float, seed: int, token: int, heads: range, all_heads: int) -> Tensor:
    """The factors of dropout for a tile's probabilities: 0, or 1 / (1 - rate).

    Each head has its own random stream, keyed by the tile's first token, so the split of the work does not
    change them.
    """
    generator = torch.Generator(p.device)
    factors = torch.empty_like(p)
    for factor, head in zip(factors, heads, strict=True):
        generator.manual_seed(seed + token * all_heads + head)
        factor.bernoulli_(1 - rate, generator=generator)
    return factors.div_(1 - rate)


def _grouped(q: Tensor, lengths: Tensor, scale: float, reach: int, rate: float) -> dict[int, int]:
    """First tokens and lengths of the sequences that short_attention.py computes."""
    if not applies(q) or rate or scale <= 0 or not q[0:1].numel():
        return {}
    sizes = lengths.tolist()
    return {
        start: size
        for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False)
        if 0 < size <= GROUPED and not _hides(reach, size)
    }


def _jobs(
    lengths: Tensor, grouped: Container[int], *tensors: Tensor
) -> Iterator[tuple[int, int, *tuple[Tensor, ...]]]:
    """First token, first head, and views (heads, length, ...) of each sequence that is not empty or grouped.

    A long sequence is split by heads into one job for each worker, so that no worker waits for another.
    """
    sizes = [size for size in lengths.tolist() if size]
    starts = list(accumulate(sizes, initial=0))[:-1]
    if all(start in grouped for start in starts):
        return
    for token, *views in zip(starts, *(tensor.split(sizes, 1) for tensor in tensors), strict=True):
        if token in grouped:
            continue
        heads, length = views[0].shape[:2]
        each = heads if length <= ONE_JOB_TOKENS else -(-heads // count_workers())
        for head in range(0, heads, each):
            yield token, head, *(view[head : head + each] for view in views)


def attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, window: int | None, dropout: float) -> Tensor:
    """`SequenceLayout.attend`."""
    reach = -1 if window is None else window // 2
    is_inference = operator() is _attention
    if is_inference and _is_plain((q, k, v), max(lengths.tolist(), default=0), reach, dropout):
        return _fused_attention(q, k, v, lengths)
    seed = torch.randint(2**32, ()) if dropout else None
    return operator()(q, k, v, lengths, seed, q.shape[-1] ** -0.5, reach, dropout)[0]


def _is_plain(qkv: Sequence[Tensor], longest: int, reach: int, rate: float) -> bool:
    """Whether `_fused_attention` computes it: float32 on a CPU, each sequence in one job, without options."""
    fits = all(x.dtype == torch.float32 and x.device.type == "cpu" and x.stride(-1) == 1 for x in qkv)
    return fits and longest <= ONE_JOB_TOKENS and not rate and not _hides(reach, longest)


def _fused_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """`_attention` with fewer operations around the fused kernel: for short texts they take as long as it."""
    out, scale = torch.empty_like(q, memory_format=torch.contiguous_format), q.shape[-1] ** -0.5
    sizes = [size for size in lengths.tolist() if size]
    views = (tensor.transpose(0, 1)[None].split(sizes, 2) for tensor in (q, k, v, out))

    def job(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        out.copy_(_fused_forward(q, k, v, scale=scale)[0])

    run_jobs(job, zip(*views, strict=True), device=q.device)
    return out


def operator() -> Callable[..., tuple[Tensor, Tensor]]:
    """`blockwise_attention`, or in inference its function: the first call of an operator imports torch's
    compiler, which takes more than a CPU second."""
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
    """Attention within each sequence of a packed row.

    Args:
        q, k, v: (T, heads, head_dim), any floating type.
        lengths: int64 (S,) on the CPU, tokens of each sequence (0 for an empty one); they sum to T.
        seed: int64 (), on the CPU: names the mask of dropout; None without it.
        scale: factor of the scores.
        reach: a token sees the tokens at most `reach` away; -1 for no limit.
        rate: dropout of the probabilities.

    Returns:
        (T, heads, head_dim), contiguous; and for backward the logarithm of each softmax's normalizer,
        (heads, T) in float32 or float64, of the sequences that the fused or grouped kernel computes.
    """
    out, normalizer = _outputs(q)
    number = None if seed is None else int(seed)
    heads, itemsize = q.shape[1], q.element_size()

    def job(token: int, head: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor, normalizer: Tensor) -> None:
        if _is_fused(q, reach, rate, backward=False):
            result, logarithm = _fused_forward(*map(_as_fused, (q, k, v)), scale=scale)
            out.copy_(result[0])
            normalizer.copy_(logarithm[0])
            return
        for some, queries, keys in _tiles(q.shape[0], q.shape[1], itemsize, reach):
            p = _probabilities(q[some, queries], k[some, keys], queries, keys, scale, reach)
            if number is not None:
                own = range(head + some.start, head + some.stop)
                p *= _factors(p, rate, number, token + queries.start, own, heads)
            torch.bmm(p, v[some, keys], out=out[some, queries])

    grouped = _grouped(q, lengths, scale, reach, rate)
    if grouped:
        inputs = tuple(TensorRows.of(tensor) for tensor in (q, k, v))
        shared = scale, inputs, TensorRows.of(out), normalizer.numpy()
        items = ((*group, *shared) for group in groups(grouped.items(), *q.shape[1:]))
        run_jobs(short_attention.forward, items, device=q.device)
    views = (tensor.transpose(0, 1) for tensor in (q, k, v, out))
    run_jobs(job, _jobs(lengths, grouped, *views, normalizer), device=q.device)
    return out, normalizer


def _outputs(q: Tensor) -> tuple[Tensor, Tensor]:
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
    """The gradients of q, k and v, (T, 3, heads, head_dim), from the gradient of the output."""
    gradients = _gradients(q)
    number = None if seed is None else int(seed)
    heads, itemsize = q.shape[1], q.element_size()

    def job(
        token: int,
        head: int,
        grad: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        normalizer: Tensor,
        d_q: Tensor,
        d_k: Tensor,
        d_v: Tensor,
    ) -> None:
        if _is_fused(q, reach, rate, backward=True):
            inputs = map(_as_fused, (grad, q, k, v, out))
            found = _fused_backward(*inputs, normalizer[None], 0.0, False, scale=scale)
            for mine, gradient in zip((d_q, d_k, d_v), found, strict=True):
                mine.copy_(gradient[0])
            return
        for some, queries, keys in _tiles(q.shape[0], q.shape[1], itemsize, reach):
            whole = keys == queries == slice(0, q.shape[1])
            beta = 0 if whole else 1  # a single tile writes its gradients, several add theirs
            if beta and queries.start == 0:
                d_k[some] = 0
                d_v[some] = 0
            q_i, k_i, v_i, grad_i = q[some, queries], k[some, keys], v[some, keys], grad[some, queries]
            p = _probabilities(q_i, k_i, queries, keys, scale, reach)
            d_p = torch.bmm(grad_i, v_i.transpose(1, 2))
            kept = p
            if number is not None:
                own = range(head + some.start, head + some.stop)
                factors = _factors(p, rate, number, token + queries.start, own, heads)
                kept = p * factors
                d_p *= factors
            d_v[some, keys].baddbmm_(kept.transpose(1, 2), grad_i, beta=beta)
            d_s = torch._softmax_backward_data(d_p, p, -1, p.dtype)
            d_q[some, queries].baddbmm_(d_s, k_i, beta=0, alpha=scale)
            d_k[some, keys].baddbmm_(d_s.transpose(1, 2), q_i, beta=beta, alpha=scale)

    grouped = _grouped(q, lengths, scale, reach, rate)
    if grouped:
        inputs = tuple(TensorRows.of(tensor) for tensor in (k, q, v, grad))
        written = tuple(TensorRows.of(gradients[:, part]) for part in (0, 2, 1))
        shared = scale, inputs, normalizer.numpy(), written
        items = ((*group, *shared) for group in groups(grouped.items(), *q.shape[1:]))
        run_jobs(short_attention.backward, items, device=q.device)
    views = (tensor.transpose(0, 1) for tensor in (grad, q, k, v, out))
    d_views = (tensor.transpose(0, 1) for tensor in gradients.unbind(1))
    run_jobs(job, _jobs(lengths, grouped, *views, normalizer, *d_views), device=q.device)
    return gradients


def _gradients(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], 3, *q.shape[1:])


@blockwise_attention_backward.register_fake
def _(grad, q, k, v, out, normalizer, lengths, seed, scale, reach, rate):
    return _gradients(q)


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
