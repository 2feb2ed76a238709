"""Cross-entropy of a linear layer's scores without the (M, V) matrix of scores.

The gradients are computed in the forward pass, for a group of rows at a time, when the scores of those rows
are at hand (as Liger Kernel does: Hsu et al. 2024, section 3.2); backward only multiplies them. In a group
the vocabulary is cut into tiles that stay in the cache: a first pass leaves the softmax over each tile, a
second one, when the normaliser of the whole row is known, turns that into the gradient of the scores. So exp
is computed once, nothing is recomputed, and there are 3 matrix products of 2 * M * V * d flops: the floor.
Computing the scores again in backward (as Wijmans et al. 2024, "Cut Your Losses") makes 4.

What lives: the scores of a group once, in the dtype of `hidden` (GROUP bytes), where the plain form holds all
scores three or four times, in float32; and the gradient of the weight, from the forward pass on.

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
"""Bytes of scores that live at once. (Those of cuda, here and below, have not been measured.)"""

SMALL = 32 << 20
"""Bytes of all scores in float32 below which the plain form is taken: with two CPU threads it is the faster
one up to about 600 x 8,000 scores, and the slower one at 600 x 30,000."""

TILE = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Bytes of a tile in float32: what the caches near the arithmetic hold."""

LEAST = 256
"""Rows of a group and columns of a tile, at least: thinner matrix products are slow."""

Gradients = tuple[Tensor, Tensor, Tensor]


def cross_entropy_sum(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum of weights * cross-entropy, () in float32 at least: of masked tokens, sequences, pairs or tokens.

    Args:
        scores: (N, classes); N is M, S or T.
        labels: int64 (N,), -100 where there is none.
        weights: (N,), what each counts; 1 by default. They get no gradient.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if weights is None:
        return F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    losses = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none")
    return (losses * weights.detach()).sum()


def hits(scores: Tensor, labels: Tensor) -> Tensor:
    """How many labels have the highest score of their row, alone or with others: int64 ().

    In bfloat16, whose scores are round, ties are no rarity: of two that share the highest score `argmax`
    takes the first, and this the label.

    Args:
        scores, labels: as of `cross_entropy_sum`.
    """
    scores = scores.detach()
    own = scores.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return ((own >= scores.amax(1)) & (labels != IGNORED)).sum()


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sum of weights * cross-entropy(hidden @ weight.T + bias, labels), with gradients of the first three.

    Matrix products are made in the dtype of `hidden`, or in autocast's; softmax, sums over the vocabulary and
    over rows, and the gradients until they have been multiplied by the incoming one, in float32 at least. So
    loss scaling changes no rounding.

    Args:
        hidden: (M, d).
        weight: (V, d).
        bias: (V,), or None.
        labels: int64 (M,), -100 where there is no prediction; such rows cost nothing on the CPU.
        weights: float (M,), what each prediction counts; 1 by default. With 1 / (predictions of its sequence)
            the sum is that of per-sequence means (Krell et al. 2021, section 3.2.3). It gets no gradient.

    Returns:
        A scalar in float32, float64 if `hidden` is. It can be differentiated once.

    Raises:
        BrimfulError: a label outside of the vocabulary (on the CPU; elsewhere the sum is infinite). Where the
            plain form is taken, F.cross_entropy raises IndexError.
    """
    return linear_cross_entropy_and_hits(hidden, weight, bias, labels, weights)[0]


def linear_cross_entropy_and_hits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`linear_cross_entropy`, and how many labels have the highest score: both () and of one dtype.

    The second, which `weights` do not weigh, costs next to nothing: the highest score is at hand. As in
    `hits`, it counts a label that shares the highest score.
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
    """The sum, the hits, and the sum's gradients by hidden, weight and bias, empty if they are not needed."""
    total, found, gradients = _outputs(hidden, weight, bias, needs_gradients)
    used = labels != IGNORED
    if weights is None:
        weights = torch.ones_like(labels, dtype=total.dtype)
    weights = torch.where(used, weights, 0).to(total.dtype)
    if hidden.device.type != "cpu":  # choosing rows would wait for the device, and make shapes depend on data
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
    """What `_sum_and_gradients` returns: zeros, and room for the weight's gradient."""
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
    """Fill in the sum over these rows, their hits, and the sum's gradients if there is room for them."""
    d_hidden, d_weight, d_bias = gradients
    if not len(hidden):
        d_weight.zero_()
    kind = "cpu" if hidden.device.type == "cpu" else "cuda"
    hands = workers() if kind == "cpu" else 1
    for rows in _parts(len(hidden), GROUP[kind] // (len(weight) * hidden.element_size())):
        h, label, scale = hidden[rows], labels[rows], weights[rows]
        tiles = list(_parts(len(weight), TILE[kind] // (len(h) * 4), hands))
        kept = [h.new_empty(len(h), c.stop - c.start) if d_hidden.numel() else None for c in tiles]
        normalisers, scores, highest = total.new_empty(3, len(tiles), len(h))
        _softmax_of_tiles(h, weight, bias, label, tiles, kept, normalisers, scores, highest)
        normaliser, score = normalisers.logsumexp(0), scores.amax(0)
        found.add_((score >= highest.amax(0)).sum())
        loss = torch.where(label == IGNORED, 0, normaliser - score)
        total.add_((loss * scale).sum())
        if not d_hidden.numel():
            continue
        d_score = torch.expm1(-loss).mul_(scale).to(h.dtype)  # p - 1 of the label's, rounded last
        factors = (normalisers - normaliser).exp_().mul_(scale)

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
        parts = zip(*(t.tensor_split(hands) for t in (d_hidden[rows], *kept) if t is not None), strict=True)
        run(by_rows, parts, device=h.device)


def _softmax_of_tiles(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    label: Tensor,
    tiles: list[slice],
    kept: list[Tensor | None],
    normalisers: Tensor,
    scores: Tensor,
    highest: Tensor,
) -> None:
    """For each tile write its softmax, the logsumexp, the label's score, which is -inf in other tiles, and
    the highest one."""

    def job(columns: slice, keep: Tensor | None, normaliser: Tensor, score: Tensor, most: Tensor) -> None:
        b = None if bias is None else bias[columns].to(h.dtype)
        tile = F.linear(h, weight[columns].to(h.dtype), b)
        p = torch.softmax(tile, 1, dtype=score.dtype)
        most.copy_(tile.amax(1))
        torch.sub(most, p.amax(1).log_(), out=normaliser)
        place, inside = _place(label, columns)
        score.copy_(torch.where(inside, tile.gather(1, place)[:, 0], -torch.inf))
        if keep is not None:
            keep.copy_(p)

    run(job, zip(tiles, kept, normalisers, scores, highest, strict=True), device=h.device)


def _parts(size: int, most: int, hands: int = 1) -> Iterator[slice]:
    """Slices of nearly equal length that cover `size`, none above `most` or LEAST: as many for each hand."""
    count = max(1, -(-size // (max(most, LEAST) * hands))) * hands
    each = max(1, -(-size // count))
    return (slice(start, min(start + each, size)) for start in range(0, size, each))


def _place(label: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Where in a tile each row's label is, (rows, 1), and whether it is there."""
    inside = (label >= columns.start) & (label < columns.stop)
    return (label - columns.start).clamp(0, columns.stop - columns.start - 1)[:, None], inside


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """total += a @ b; `first` writes it, and what was there before is nothing."""
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
