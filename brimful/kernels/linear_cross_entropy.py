"""Cross-entropy of a linear layer's scores without the (M, V) matrix of scores.

The gradients are computed in the forward pass, for one group of rows at a time, while the scores of these
rows are in memory (as in Liger Kernel: Hsu et al. 2024, section 3.2); backward only multiplies them. So there
are 3 matrix products of 2 * M * V * d flops, the minimum. Computing the scores again in backward takes 4
(Wijmans et al. 2024, "Cut Your Losses").

On a CPU the vocabulary of a group is cut into tiles that stay in the cache. A first pass computes the softmax
over each tile. A second pass, once the normalizer of the whole row is known, turns it into the gradient of
the scores. So exp is computed once. Memory: the scores of one group, in the dtype of `hidden` (GROUP bytes),
where the plain form holds all scores three or four times in float32; and the gradient of the weight, from the
forward pass on.

On other devices a group is one piece, and the vocabulary is padded to a multiple of 64 with scores of minus
infinity, since 16-bit products are slow where a stride is not a multiple of 8. The products of 16-bit numbers
have float32 results. A compiled function turns the scores of a group into losses and gradients. A group takes
3 products and 2 kernels, recorded on a device that computes nothing (bench/common/recorder; torch 2.13). By
Inductor's count the kernels move 8.0 bytes a score at vocabularies of 32,768 and 30,522; where a row of
scores does not stay in the cache between its two readings, it is 12. Peak memory beyond the inputs is 948 MiB
for 8,192 and 946 MiB for 19,660 predictions at a hidden size of 768: the scores of a group in float32, their
gradients in 16 bits, the matrix in 16 bits, and the gradients of the inputs.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.cpu_threads import count_workers, run_jobs, run_loops
from brimful.base.errors import BrimfulError
from brimful.base.torch_compile import Compiled
from brimful.base.types import IGNORED
from brimful.data.batch import STEP
from brimful.kernels import bfloat16

GROUP = 64 << 20
"""On a CPU: bytes of scores in memory at a time."""

GROUP_ON_DEVICE = 512 << 20
"""Elsewhere: bytes of scores in float32 in memory at a time. Their 16-bit gradients take half as many. (Its
effect on a GPU's speed has not been measured.)"""

PLAIN_BYTES = 32 << 20
"""Below this many bytes of scores in float32 the plain form is used: with two CPU threads it is faster up to
about 600 x 8,000 scores, and slower at 600 x 30,000."""

PLAIN_BYTES_WITH_LOOPS = 4 << 20
"""The same in bfloat16 on a CPU, whose loops are faster from about 300 x 4,096 scores on (AMX)."""

TILE = 2 << 20
"""On a CPU: bytes of a tile in float32, small enough for the fast caches."""

ALIGNMENT = 64
"""Not on a CPU: rows of a group and columns of its scores are a multiple of this."""

MIN_ROWS = 256
"""The fewest rows of a group and columns of a tile: thinner matrix products are slow."""

Gradients = tuple[Tensor, Tensor, Tensor]


def applies(hidden: Tensor, weight: Tensor, labels: Tensor) -> bool:
    """Whether there are enough scores; the plain form is faster for few."""
    loops = bfloat16.applies(hidden) or bfloat16.autocasts(hidden)
    return len(labels) * len(weight) * 4 >= (PLAIN_BYTES_WITH_LOOPS if loops else PLAIN_BYTES)


def sum_and_hits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`model.cross_entropy.linear_cross_entropy`."""
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
    used = labels != IGNORED
    wide = torch.promote_types(hidden.dtype, torch.float32)
    if weights is None:
        weights = torch.ones_like(labels, dtype=wide)
    weights = torch.where(used, weights, 0).to(wide)
    if hidden.device.type != "cpu":  # choosing rows would wait for the device; shapes would vary
        return _by_groups(hidden, weight, bias, labels, weights, needs_gradients)
    total, found, gradients = _outputs(hidden, weight, bias, needs_gradients)
    by_loops = bfloat16.applies(hidden)
    given = labels[used]
    count = len(given)
    if by_loops:  # with a few unused rows, so that few shapes occur
        count = min(len(used), -(-count // STEP) * STEP)
    chosen = (~used).int().argsort(stable=True)[:count]
    if len(given) and not 0 <= int(given.min()) <= int(given.max()) < len(weight):
        raise BrimfulError(
            f"labels from {int(given.min())} to {int(given.max())} do not fit a vocabulary of {len(weight)}"
        )
    d_hidden, d_weight, d_bias = gradients
    d_chosen = d_hidden[chosen] if needs_gradients else d_hidden
    d_used = d_chosen, d_weight, d_bias
    accumulate = _accumulate_by_loops if by_loops else _accumulate
    h = hidden[chosen]
    h[len(given) :] = 0
    if not count:  # no group writes it
        d_weight.zero_()
    accumulate(total, found, d_used, h, weight, bias, labels[chosen], weights[chosen])
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


@torch.no_grad()
def _by_groups(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor,
    needs_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What `_sum_and_gradients` returns, in groups of one shape and without waiting for the device.

    Args:
        weights: in the dtype of the sum; 0 where there is no label.
    """
    rows, (vocabulary, width), wide = len(hidden), weight.shape, weights.dtype
    columns = _aligned(vocabulary)
    count = max(1, -(-rows * columns * wide.itemsize // GROUP_ON_DEVICE))
    each = _aligned(-(-rows // count))
    matrix = _padded(weight, columns, 0, hidden.dtype)
    shift = _padded(weight.new_zeros(vocabulary) if bias is None else bias, columns, -torch.inf, wide)
    groups = zip(
        _padded(hidden, count * each, 0, hidden.dtype).split(each),
        _padded(labels, count * each, IGNORED, labels.dtype).split(each),
        _padded(weights, count * each, 0, wide).split(each),
        strict=True,
    )
    d_hidden, d_weight = (
        hidden.new_empty((size, width) if needs_gradients else 0, dtype=wide)
        for size in (count * each, columns)
    )
    d_shift = torch.zeros_like(shift) if needs_gradients and bias is not None else None
    dtype = hidden.dtype if needs_gradients else None
    losses, rights = [], []
    with torch.autocast(hidden.device.type, enabled=False):
        for index, (h, label, scale) in enumerate(groups):
            scores = _product(h, matrix.t())
            loss, right, d_scores = _losses(scores, shift, label, scale, dtype, d_shift)
            del scores  # or two groups of them would be in memory
            losses.append(loss)
            rights.append(right)
            if d_scores is not None:
                _product(d_scores, matrix, d_hidden[index * each : (index + 1) * each])
                _product(d_scores.t(), h, d_weight, add=index > 0)
            del d_scores
        total, found = torch.cat(losses).sum(), torch.cat(rights).sum()
    d_bias = shift.new_empty(0) if d_shift is None else d_shift[:vocabulary]
    if not needs_gradients:
        return total, found, d_hidden, d_weight, d_bias
    return total, found, d_hidden[:rows], d_weight[:vocabulary], d_bias


def _losses_of_scores(
    scores: Tensor,
    shift: Tensor,
    label: Tensor,
    scale: Tensor,
    dtype: torch.dtype | None,
    d_shift: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of each row the scaled loss, and 1 if its label has the highest score, else 0; and the gradient of the
    scores in `dtype`, whose sum over rows is added to `d_shift`.

    Args:
        scores: (rows, columns), in float32 or wider as all but the labels.
        shift: (columns,), added to the scores; minus infinity in columns beyond the vocabulary.
        label, scale: (rows,).
        dtype: None: no gradients.
        d_shift: (columns,), changed in place; None: not needed.
    """
    scores = scores + shift
    highest = scores.amax(1, keepdim=True)
    normalizer = highest + (scores - highest).exp().sum(1, keepdim=True).log()
    inside = (label >= 0) & (label < scores.shape[1])
    own = torch.where(inside, scores.gather(1, torch.where(inside, label, 0)[:, None])[:, 0], -torch.inf)
    used = label != IGNORED
    loss = torch.where(used, normalizer[:, 0] - own, 0)
    right = torch.where(used & (own >= highest[:, 0]), scale.new_ones(()), 0)
    if dtype is None:
        return loss * scale, right, None
    # p - 1 for the label, rounded last; for the others p
    columns = torch.arange(scores.shape[1], device=scores.device)
    is_label = columns == label[:, None]
    d_scores = torch.where(is_label, torch.expm1(-loss)[:, None], (scores - normalizer).exp())
    d_scores = (d_scores * scale[:, None]).to(dtype)
    if d_shift is not None:
        d_shift += d_scores.sum(0, dtype=d_shift.dtype)
    return loss * scale, right, d_scores


_losses = Compiled(_losses_of_scores, "the cross-entropy", fullgraph=True)


def _aligned(size: int) -> int:
    """The next multiple of ALIGNMENT, at least one."""
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT


def _padded(tensor: Tensor, length: int, fill: float, dtype: torch.dtype) -> Tensor:
    """The tensor in `dtype` with rows of `fill` at its end; itself if nothing changes."""
    if len(tensor) == length:
        return tensor.to(dtype)
    padded = tensor.new_full((length, *tensor.shape[1:]), fill, dtype=dtype)
    padded[: len(tensor)] = tensor
    return padded


def _product(a: Tensor, b: Tensor, out: Tensor | None = None, *, add: bool = False) -> Tensor:
    """a @ b in float32 or wider, written to `out` or added to it."""
    wide = torch.promote_types(a.dtype, torch.float32)
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[1], dtype=wide)
    if a.dtype != wide and a.is_cuda:  # only there can the result of a product have another dtype
        if add:
            return torch.addmm(out, a, b, wide, out=out)
        return torch.mm(a, b, wide, out=out)
    a, b = a.to(wide), b.to(wide)
    return torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)


def _accumulate_by_loops(
    total: Tensor,
    found: Tensor,
    gradients: Gradients,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor,
) -> None:
    """`_accumulate` in bfloat16: one loop turns a group's scores into gradients, each row in the cache."""
    d_hidden, d_weight, d_bias = gradients
    matrix = weight.to(hidden.dtype)
    shift = d_hidden.new_zeros(len(weight)) if bias is None else bias.to(d_hidden.dtype)
    write = d_hidden.numel() > 0
    most = max(MIN_ROWS, GROUP // (len(weight) * hidden.element_size()) // STEP * STEP)
    for start in range(0, len(hidden), most):
        rows = slice(start, start + most)
        h, scale = hidden[rows], weights[rows]
        scores = h @ matrix.t()
        sums = None if bias is None else d_bias
        losses, right = score_gradients(scores, shift, labels[rows], scale, sums, write=write)
        total.add_((losses * scale).sum())
        found.add_(right.sum())
        if write:
            _add_product(d_hidden[rows], scores, matrix, first=True)
            # oneDNN reads scores faster as they lie: transposed, 2,048 x 16,384 took 1.6 times as long (AMX).
            add_transposed(d_weight, h.t().contiguous() @ scores, first=start == 0)


def score_gradients(
    scores: Tensor, bias: Tensor, labels: Tensor, scales: Tensor, sums: Tensor | None, *, write: bool
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each row, and 1 if the label has the highest score, else 0: both float32 (rows,).

    Args:
        scores: (rows, columns), contiguous; if `write`, replaced by the gradients of the losses.
        bias: float32 (columns,), added to the scores of each row.
        labels: int64 (rows,), each a column, or negative in a row that has no loss.
        scales: float32 (rows,), what the gradients of each row are multiplied by.
        sums: float32 (columns,), to which the gradients of each column are added; None: not needed.
    """
    from brimful.kernels import gradient_loops  # needs numba

    losses, hits = scales.new_empty(2, len(scores))
    parts = bfloat16.divided(scores, labels, scales, losses, hits)
    own_sums = scales.new_zeros(len(parts), scores.shape[1])
    items = zip(parts, own_sums.numpy(), strict=True)
    run_loops(
        gradient_loops.score_gradients, [(*part, bias.detach().numpy(), own, write) for part, own in items]
    )
    if write and sums is not None:
        sums += own_sums.sum(0)
    return losses, hits


def add_transposed(total: Tensor, x: Tensor, *, first: bool) -> None:
    """total += x.t(), or total = x.t() if `first`.

    Args:
        total: float32 (rows, columns), changed.
        x: (columns, rows).
    """
    from brimful.kernels import gradient_loops  # needs numba

    each = max(1, -(-len(total) // count_workers()))
    parts = zip(x.split(each, 1), total.split(each), strict=True)
    run_loops(
        gradient_loops.add_transposed,
        [(bfloat16.numbers(columns), rows.numpy(), first) for columns, rows in parts],
    )


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
    """On a CPU, where all labels are in the vocabulary: add these rows to the sum and the hits, and to the
    gradients unless these are empty."""
    d_hidden, d_weight, d_bias = gradients
    for rows in _slices(len(hidden), GROUP // (len(weight) * hidden.element_size())):
        d_rows = d_hidden[rows] if d_hidden.numel() else None
        group = hidden[rows], weight, bias, labels[rows], weights[rows]
        _accumulate_group(total, found, d_rows, d_weight, d_bias, *group, first=rows.start == 0)


def _accumulate_group(
    total: Tensor,
    found: Tensor,
    d_hidden: Tensor | None,
    d_weight: Tensor,
    d_bias: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    label: Tensor,
    scale: Tensor,
    *,
    first: bool,
) -> None:
    """`_accumulate` of one group; of the first, what `d_weight` holds is written over."""
    threads = count_workers()
    tiles = list(_slices(len(weight), TILE // (len(hidden) * 4), threads))
    kept = [hidden.new_empty(len(hidden), c.stop - c.start) if d_hidden is not None else None for c in tiles]
    normalizers, scores, highest = total.new_empty(3, len(tiles), len(hidden))

    def softmax(columns: slice, keep: Tensor | None, normalizer: Tensor, score: Tensor, most: Tensor) -> None:
        """Write a tile's softmax, its logsumexp, the label's score, minus infinity if the label is in another
        tile, and its highest score."""
        b = None if bias is None else bias[columns].to(hidden.dtype)
        tile = F.linear(hidden, weight[columns].to(hidden.dtype), b)
        p = torch.softmax(tile, 1, dtype=score.dtype)
        most.copy_(tile.amax(1))
        torch.sub(most, p.amax(1).log_(), out=normalizer)
        place, inside = _place(label, columns)
        score.copy_(torch.where(inside, tile.gather(1, place)[:, 0], -torch.inf))
        if keep is not None:
            keep.copy_(p)

    run_jobs(softmax, zip(tiles, kept, normalizers, scores, highest, strict=True), device=hidden.device)
    normalizer, score = normalizers.logsumexp(0), scores.amax(0)
    found.add_((score >= highest.amax(0)).sum())
    loss = normalizer - score
    total.add_((loss * scale).sum())
    if d_hidden is None:
        return
    d_score = torch.expm1(-loss).mul_(scale).to(hidden.dtype)  # p - 1 for the label, rounded last
    factors = (normalizers - normalizer).exp_().mul_(scale)

    def by_columns(columns: slice, d_scores: Tensor, factor: Tensor) -> None:
        d_scores.mul_(factor[:, None])
        place, inside = _place(label, columns)
        d_label = torch.where(inside[:, None], d_score[:, None], d_scores.gather(1, place))
        d_scores.scatter_(1, place, d_label)
        _add_product(d_weight[columns], d_scores.t(), hidden, first=first)
        if bias is not None:
            d_bias[columns] += d_scores.sum(0, dtype=d_bias.dtype)

    def by_rows(part: Tensor, *d_scores: Tensor) -> None:
        for columns, tile in zip(tiles, d_scores, strict=True):
            _add_product(part, tile, weight[columns].to(tile.dtype), first=columns.start == 0)

    run_jobs(by_columns, zip(tiles, kept, factors, strict=True), device=hidden.device)
    parts = zip(*(t.tensor_split(threads) for t in (d_hidden, *kept) if t is not None), strict=True)
    run_jobs(by_rows, parts, device=hidden.device)


def _slices(size: int, most: int, threads: int = 1) -> Iterator[slice]:
    """Slices of nearly equal length that cover `size`: at most max(`most`, MIN_ROWS) long, and a multiple of
    `threads` in number."""
    count = max(1, -(-size // (max(most, MIN_ROWS) * threads))) * threads
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
