"""Cross-entropy of a linear layer's scores without the (M, V) matrix of scores.

The gradients are computed in the forward pass, for one group of rows at a time, while the scores of these
rows are in memory (as in Liger Kernel: Hsu et al. 2024, section 3.2); backward only multiplies them. Within a
group the vocabulary is cut into tiles that stay in the cache. A first pass computes the softmax over each
tile. A second pass, once the normalizer of the whole row is known, turns it into the gradient of the scores.
So exp is computed once, and there are 3 matrix products of 2 * M * V * d flops, the minimum. Computing the
scores again in backward takes 4 (Wijmans et al. 2024, "Cut Your Losses").

Memory: the scores of one group, in the dtype of `hidden` (GROUP bytes), where the plain form holds all scores
three or four times in float32; and the gradient of the weight, from the forward pass on.

bench/linear_cross_entropy.py compares it with the plain form.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.data.batch import IGNORED
from brimful.errors import BrimfulError
from brimful.nn.workers import run, workers

GROUP = {"cpu": 64 << 20, "cuda": 512 << 20}
"""Bytes of scores in memory at a time. (The values for cuda, here and below, have not been measured.)"""

SMALL = 32 << 20
"""Below this many bytes of scores in float32 the plain form is used: with two CPU threads it is faster up to
about 600 x 8,000 scores, and slower at 600 x 30,000."""

TILE = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Bytes of a tile in float32, small enough for the fast caches."""

LEAST = 256
"""The fewest rows of a group and columns of a tile: thinner matrix products are slow."""

Gradients = tuple[Tensor, Tensor, Tensor]


def cross_entropy_sum(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum of weights * cross-entropy, () in float32 or wider.

    Args:
        scores: (N, classes); N is M, S or T.
        labels: int64 (N,), -100 where there is no label.
        weights: (N,), the factor of each label's loss; 1 by default. They get no gradient.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if weights is None:
        return F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    losses = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none")
    return (losses * weights.detach()).sum()


def hits(scores: Tensor, labels: Tensor) -> Tensor:
    """How many labels have the highest score of their row, alone or with others: int64 ().

    In bfloat16 two scores are often equal: where the label shares the highest score, it counts, though
    `argmax` might return the other.

    Args:
        scores, labels: as in `cross_entropy_sum`.
    """
    scores = scores.detach()
    own = scores.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return ((own >= scores.amax(1)) & (labels != IGNORED)).sum()


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sum of weights * cross-entropy(hidden @ weight.T + bias, labels), with gradients of the first three.

    Matrix products have the dtype of `hidden`, or autocast's. Softmax, sums, and gradients until they have
    been multiplied by the incoming gradient are in float32 or wider, so loss scaling does not change their
    rounding.

    Args:
        hidden: (M, d).
        weight: (V, d).
        bias: (V,), or None.
        labels: int64 (M,), -100 where there is no prediction; such rows cost nothing on the CPU.
        weights: float (M,), the factor of each prediction's loss; 1 by default. With 1 / (predictions of its
            sequence) the result is the sum of the sequences' means (Krell et al. 2021, section 3.2.3). They
            get no gradient.

    Returns:
        A scalar in float32, float64 if `hidden` is. It can be differentiated once.

    Raises:
        BrimfulError: a label outside the vocabulary (on the CPU; elsewhere the sum is infinite). In the plain
            form F.cross_entropy raises IndexError.
    """
    return linear_cross_entropy_and_hits(hidden, weight, bias, labels, weights)[0]


def linear_cross_entropy_and_hits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`linear_cross_entropy` and `hits`, which ignores `weights`: both () and of one dtype.

    The hits cost next to nothing, since the highest score is known.
    """
    if len(labels) * len(weight) * 4 < SMALL:
        scores = F.linear(hidden, weight, bias)
        total = cross_entropy_sum(scores, labels, weights)
        return total, hits(scores, labels).to(total.dtype)
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        hidden = hidden.to(torch.get_autocast_dtype(kind))
    needs_gradients = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (hidden, weight, bias)
    )
    total, found, *_ = _sum_and_gradients(hidden, weight, bias, labels, weights, needs_gradients)
    return total, found


@torch.library.custom_op("brimful::linear_cross_entropy", mutates_args=())
def _sum_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor | None,
    needs_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The sum, the hits, and the gradients of the sum by hidden, weight and bias, empty if not needed."""
    total, found, gradients = _outputs(hidden, weight, bias, needs_gradients)
    used = labels != IGNORED
    if weights is None:
        weights = torch.ones_like(labels, dtype=total.dtype)
    weights = torch.where(used, weights, 0).to(total.dtype)
    if hidden.device.type != "cpu":  # choosing rows would wait for the device; shapes would vary
        _accumulate(total, found, gradients, hidden, weight, bias, labels, weights)
        return total, found, *gradients
    chosen = used.nonzero()[:, 0]
    labels = labels[chosen]
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(weight):
        raise BrimfulError(
            f"labels from {int(labels.min())} to {int(labels.max())} do not fit a vocabulary of {len(weight)}"
        )
    d_hidden, d_weight, d_bias = gradients
    d_chosen = d_hidden[chosen] if needs_gradients else d_hidden
    d_used = d_chosen, d_weight, d_bias
    _accumulate(total, found, d_used, hidden[chosen], weight, bias, labels, weights[chosen])
    if needs_gradients:
        d_hidden.index_copy_(0, chosen, d_chosen)
    return total, found, *gradients


def _outputs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, needs_gradients: bool
) -> tuple[Tensor, Tensor, Gradients]:
    """The tensors that `_sum_and_gradients` returns: zeros, and an empty one for the weight's gradient."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    d_hidden, d_bias = (
        hidden.new_zeros(tensor.shape if needs_gradients and tensor is not None else 0, dtype=wide)
        for tensor in (hidden, bias)
    )
    d_weight = hidden.new_empty(weight.shape if needs_gradients else 0, dtype=wide)
    total, found = (hidden.new_zeros((), dtype=wide) for _ in range(2))
    return total, found, (d_hidden, d_weight, d_bias)


def _accumulate(
    total: Tensor,
    found: Tensor,
    gradients: Gradients,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor,
) -> None:
    """Add these rows to the sum and the hits, and to the gradients unless these are empty."""
    d_hidden, d_weight, d_bias = gradients
    if not len(hidden):
        d_weight.zero_()
    kind = "cpu" if hidden.device.type == "cpu" else "cuda"
    threads = workers() if kind == "cpu" else 1
    for rows in _slices(len(hidden), GROUP[kind] // (len(weight) * hidden.element_size())):
        h, label, scale = hidden[rows], labels[rows], weights[rows]
        tiles = list(_slices(len(weight), TILE[kind] // (len(h) * 4), threads))
        kept = [h.new_empty(len(h), c.stop - c.start) if d_hidden.numel() else None for c in tiles]
        normalizers, scores, highest = total.new_empty(3, len(tiles), len(h))
        _softmax_of_tiles(h, weight, bias, label, tiles, kept, normalizers, scores, highest)
        normalizer, score = normalizers.logsumexp(0), scores.amax(0)
        found.add_((score >= highest.amax(0)).sum())
        loss = torch.where(label == IGNORED, 0, normalizer - score)
        total.add_((loss * scale).sum())
        if not d_hidden.numel():
            continue
        d_score = torch.expm1(-loss).mul_(scale).to(h.dtype)  # p - 1 for the label, rounded last
        factors = (normalizers - normalizer).exp_().mul_(scale)

        def by_columns(
            columns: slice,
            d_scores: Tensor,
            factor: Tensor,
            h: Tensor = h,
            label: Tensor = label,
            d_score: Tensor = d_score,
            first: bool = rows.start == 0,
        ) -> None:
            d_scores.mul_(factor[:, None])
            place, inside = _place(label, columns)
            d_label = torch.where(inside[:, None], d_score[:, None], d_scores.gather(1, place))
            d_scores.scatter_(1, place, d_label)
            _add_product(d_weight[columns], d_scores.t(), h, first=first)
            if bias is not None:
                d_bias[columns] += d_scores.sum(0, dtype=d_bias.dtype)

        def by_rows(part: Tensor, *d_scores: Tensor, tiles: list[slice] = tiles) -> None:
            for columns, tile in zip(tiles, d_scores, strict=True):
                _add_product(part, tile, weight[columns].to(tile.dtype), first=columns.start == 0)

        run(by_columns, zip(tiles, kept, factors, strict=True), device=h.device)
        parts = zip(*(t.tensor_split(threads) for t in (d_hidden[rows], *kept) if t is not None), strict=True)
        run(by_rows, parts, device=h.device)


def _softmax_of_tiles(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    label: Tensor,
    tiles: list[slice],
    kept: list[Tensor | None],
    normalizers: Tensor,
    scores: Tensor,
    highest: Tensor,
) -> None:
    """Write for each tile its softmax, its logsumexp, its highest score, and the label's score, which is -inf
    if the label is in another tile."""

    def job(columns: slice, keep: Tensor | None, normalizer: Tensor, score: Tensor, most: Tensor) -> None:
        b = None if bias is None else bias[columns].to(h.dtype)
        tile = F.linear(h, weight[columns].to(h.dtype), b)
        p = torch.softmax(tile, 1, dtype=score.dtype)
        most.copy_(tile.amax(1))
        torch.sub(most, p.amax(1).log_(), out=normalizer)
        place, inside = _place(label, columns)
        score.copy_(torch.where(inside, tile.gather(1, place)[:, 0], -torch.inf))
        if keep is not None:
            keep.copy_(p)

    run(job, zip(tiles, kept, normalizers, scores, highest, strict=True), device=h.device)


def _slices(size: int, most: int, threads: int = 1) -> Iterator[slice]:
    """Slices of nearly equal length that cover `size`: at most max(`most`, LEAST) long, and a multiple of
    `threads` in number."""
    count = max(1, -(-size // (max(most, LEAST) * threads))) * threads
    each = max(1, -(-size // count))
    return (slice(start, min(start + each, size)) for start in range(0, size, each))


def _place(label: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Each row's label as a column of a tile, (rows, 1), and whether it is in this tile."""
    inside = (label >= columns.start) & (label < columns.stop)
    return (label - columns.start).clamp(0, columns.stop - columns.start - 1)[:, None], inside


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """total += a @ b, or total = a @ b if `first`."""
    if total.dtype == a.dtype:
        torch.addmm(total, a, b, beta=0 if first else 1, out=total)
    elif first:
        total.copy_(a @ b)
    else:
        total.add_((a @ b).to(total.dtype))  # adding across dtypes is 10 times slower


@_sum_and_gradients.register_fake
def _(hidden, weight, bias, labels, weights, needs_gradients):
    total, found, gradients = _outputs(hidden, weight, bias, needs_gradients)
    return total, found, *gradients


def _save(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[2:])
    ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs[:3]]


def _backward(ctx, grad, *_):
    scaled = (
        None if dtype is None or grad is None else (gradient * grad).to(dtype)
        for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
    )
    return *scaled, None, None, None


_sum_and_gradients.register_autograd(_backward, setup_context=_save)
