"""Cross-entropy of a linear layer's scores without the (M, V) matrix of scores.

The gradients are computed in the forward pass, for one group of rows at a time, while the scores of these
rows are in memory (as in Liger Kernel: Hsu et al. 2024, section 3.2); backward only multiplies them. So there
are 3 matrix products of 2 * M * V * d flops, the minimum. Computing the scores again in backward takes 4
(Wijmans et al. 2024, "Cut Your Losses").

On a CPU the vocabulary of a group is cut into tiles that stay in the cache. A first pass computes the softmax
over each tile. A second pass, once the normalizer of the whole row is known, turns it into the gradient of
the scores. So exp is computed once. Memory: the scores of one group, in the dtype of `hidden` (GROUP_BYTES),
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
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.cpu_threads import count_workers, run_jobs, run_loops
from brimful.base.errors import BrimfulError
from brimful.base.torch_compile import Compiled
from brimful.base.types import IGNORED
from brimful.data.batch import STEP
from brimful.kernels import bfloat16

GROUP_BYTES = 64 << 20
"""The most bytes of scores in memory at a time on a CPU."""

DEVICE_GROUP_BYTES = 512 << 20
"""The most bytes of float32 scores in memory at a time on other devices. Their 16-bit gradients take half of
these bytes. (The effect on a GPU's speed has not been measured.)"""

PLAIN_BYTES = 32 << 20
"""Bytes of float32 scores below which the plain form computes. With two CPU threads the plain form is faster
up to 600 x 8,000 scores, and slower at 600 x 30,000."""

PLAIN_BYTES_WITH_LOOPS = 4 << 20
"""The same in bfloat16 on a CPU, whose loops are faster from about 300 x 4,096 scores on (AMX)."""

TILE_BYTES = 2 << 20
"""The most bytes of a tile in float32 on a CPU: small enough for the fast caches."""

ALIGNMENT = 64
"""The divisor of the rows of a group and the columns of its scores on devices other than a CPU."""

MIN_ROWS = 256
"""The fewest rows of a group and columns of a tile: thinner matrix products are slow."""


class _Inputs(NamedTuple):
    """The inputs of the loss: hidden (M, d), weight (V, d), bias (V,), labels and their factors (M,)."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    labels: Tensor
    factors: Tensor


class _Sums(NamedTuple):
    """The sum, the hits, and the gradients of the sum by hidden, weight and bias, empty if not needed."""

    total: Tensor
    hits: Tensor
    d_hidden: Tensor
    d_weight: Tensor
    d_bias: Tensor


def applies(hidden: Tensor, weight: Tensor, labels: Tensor) -> bool:
    """Whether there are enough scores; the plain form is faster for few."""
    has_loops = bfloat16.applies(hidden) or bfloat16.autocasts(hidden)
    return len(labels) * len(weight) * 4 >= (PLAIN_BYTES_WITH_LOOPS if has_loops else PLAIN_BYTES)


def sum_and_hits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute `model.cross_entropy.linear_cross_entropy`."""
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):  # which does not reach into an operator of one's own
        hidden = hidden.to(torch.get_autocast_dtype(kind))
    needs_gradients = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (hidden, weight, bias)
    )
    total, hits, *_ = _sum_and_gradients(hidden, weight, bias, labels, weights, needs_gradients)
    return total, hits


@torch.library.custom_op("brimful::linear_cross_entropy", mutates_args=())
def _sum_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor | None,
    needs_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute `_Sums`."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    if weights is None:
        weights = torch.ones_like(labels, dtype=wide)
    inputs = _Inputs(hidden, weight, bias, labels, torch.where(labels != IGNORED, weights, 0).to(wide))
    compute = _compute_on_cpu if hidden.device.type == "cpu" else _compute_on_device
    return (*compute(inputs, needs_gradients),)


def _make_sums(hidden: Tensor, weight: Tensor, bias: Tensor | None, needs_gradients: bool) -> _Sums:
    """Return zeros, and an empty gradient by the weight, which the first group writes."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    return _Sums(
        hidden.new_zeros((), dtype=wide),
        hidden.new_zeros((), dtype=wide),
        hidden.new_zeros(hidden.shape if needs_gradients else 0, dtype=wide),
        hidden.new_empty(weight.shape if needs_gradients else 0, dtype=wide),
        hidden.new_zeros(bias.shape if needs_gradients and bias is not None else 0, dtype=wide),
    )


def _compute_on_cpu(inputs: _Inputs, needs_gradients: bool) -> _Sums:
    """Compute the rows that have a label."""
    hidden, weight, bias, labels, factors = inputs
    is_used = labels != IGNORED
    used_labels = labels[is_used]
    rows = used_rows = len(used_labels)
    if used_rows and not 0 <= int(used_labels.min()) <= int(used_labels.max()) < len(weight):
        raise BrimfulError(
            f"labels from {int(used_labels.min())} to {int(used_labels.max())} do not fit a vocabulary of"
            f" {len(weight)}"
        )
    has_loops = bfloat16.applies(hidden)
    if has_loops:  # oneDNN compiles for each shape: a few unused rows make few shapes
        rows = min(len(labels), -(-used_rows // STEP) * STEP)
    chosen = (~is_used).int().argsort(stable=True)[:rows]  # used rows first, in their order
    chosen_hidden = hidden[chosen]
    chosen_hidden[used_rows:] = 0
    sums = _make_sums(hidden, weight, bias, needs_gradients)
    d_chosen = sums.d_hidden[chosen] if needs_gradients else sums.d_hidden
    if not rows:  # no group writes it
        sums.d_weight.zero_()
    accumulate = _accumulate_by_loops if has_loops else _accumulate_by_tiles
    chosen_inputs = _Inputs(chosen_hidden, weight, bias, labels[chosen], factors[chosen])
    accumulate(chosen_inputs, sums._replace(d_hidden=d_chosen))
    if needs_gradients:
        sums.d_hidden.index_copy_(0, chosen, d_chosen)
    return sums


@torch.no_grad()
def _compute_on_device(inputs: _Inputs, needs_gradients: bool) -> _Sums:
    """Compute all rows in groups of one shape: choosing rows would wait, and shapes would vary."""
    hidden, weight, bias, labels, factors = inputs
    rows, (vocabulary, width), wide = len(hidden), weight.shape, factors.dtype
    columns = _align(vocabulary)
    groups = max(1, -(-rows * columns * wide.itemsize // DEVICE_GROUP_BYTES))
    rows_each = _align(-(-rows // groups))
    padded_rows = groups * rows_each
    matrix = _pad(weight, columns, 0, hidden.dtype)  # (columns, d)
    # Columns beyond the vocabulary have scores of minus infinity, so probabilities of 0.
    shift = _pad(weight.new_zeros(vocabulary) if bias is None else bias, columns, -torch.inf, wide)
    hidden = _pad(hidden, padded_rows, 0, hidden.dtype)
    labels = _pad(labels, padded_rows, IGNORED, labels.dtype)
    factors = _pad(factors, padded_rows, 0, wide)
    d_hidden = hidden.new_empty((padded_rows, width) if needs_gradients else 0, dtype=wide)
    d_weight = hidden.new_empty((columns, width) if needs_gradients else 0, dtype=wide)
    d_shift = torch.zeros_like(shift) if needs_gradients and bias is not None else None
    dtype = hidden.dtype if needs_gradients else None
    losses, hits = [], []
    with torch.autocast(hidden.device.type, enabled=False):
        for start in range(0, padded_rows, rows_each):
            part = slice(start, start + rows_each)
            h = hidden[part]
            scores = _multiply(h, matrix.t())  # (rows_each, columns)
            loss, hit, d_scores = _compiled_losses(scores, shift, labels[part], factors[part], dtype, d_shift)
            del scores  # or two groups of them would be in memory
            losses.append(loss)
            hits.append(hit)
            if d_scores is not None:
                _multiply(d_scores, matrix, d_hidden[part])
                _multiply(d_scores.t(), h, d_weight, add=start > 0)
            del d_scores
        total, hit_count = torch.cat(losses).sum(), torch.cat(hits).sum()
    d_bias = shift.new_empty(0) if d_shift is None else d_shift[:vocabulary]
    if needs_gradients:
        d_hidden, d_weight = d_hidden[:rows], d_weight[:vocabulary]
    return _Sums(total, hit_count, d_hidden, d_weight, d_bias)


def _compute_losses(
    scores: Tensor,
    shift: Tensor,
    labels: Tensor,
    factors: Tensor,
    dtype: torch.dtype | None,
    d_shift: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return losses times factors, hits, and gradients by the scores in `dtype`, or None without it.

    Args:
        scores: (rows, columns), in float32 or wider as all but the labels.
        shift: (columns,), added to the scores; minus infinity in columns beyond the vocabulary.
        d_shift: (columns,), to which the sums of the gradients over rows are added; None: not needed.
    """
    scores = scores + shift
    highest = scores.amax(1, keepdim=True)
    normalizer = highest + (scores - highest).exp().sum(1, keepdim=True).log()  # (rows, 1)
    is_inside = (labels >= 0) & (labels < scores.shape[1])
    label_scores = scores.gather(1, torch.where(is_inside, labels, 0)[:, None])[:, 0]
    label_scores = torch.where(is_inside, label_scores, -torch.inf)  # so a label outside has an infinite loss
    is_used = labels != IGNORED
    losses = torch.where(is_used, normalizer[:, 0] - label_scores, 0)
    hits = torch.where(is_used & (label_scores >= highest[:, 0]), factors.new_ones(()), 0)
    if dtype is None:
        return losses * factors, hits, None
    # The gradient is p, and p - 1 = expm1(-loss) for the label. It is rounded last.
    columns = torch.arange(scores.shape[1], device=scores.device)
    is_label = columns == labels[:, None]  # no scatter, which would be a kernel of its own
    d_scores = torch.where(is_label, torch.expm1(-losses)[:, None], (scores - normalizer).exp())
    d_scores = (d_scores * factors[:, None]).to(dtype)
    if d_shift is not None:
        d_shift += d_scores.sum(0, dtype=d_shift.dtype)
    return losses * factors, hits, d_scores


_compiled_losses = Compiled(_compute_losses, "the cross-entropy", fullgraph=True)


def _align(size: int) -> int:
    """Return the next multiple of ALIGNMENT, at least one."""
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT


def _pad(tensor: Tensor, length: int, fill: float, dtype: torch.dtype) -> Tensor:
    """Return the tensor in `dtype` with rows of `fill` at its end."""
    if len(tensor) == length:
        return tensor.to(dtype)
    padded = tensor.new_full((length, *tensor.shape[1:]), fill, dtype=dtype)
    padded[: len(tensor)] = tensor
    return padded


def _multiply(a: Tensor, b: Tensor, out: Tensor | None = None, *, add: bool = False) -> Tensor:
    """Return a @ b in float32 or wider, written to `out` or added to it."""
    wide = torch.promote_types(a.dtype, torch.float32)
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[1], dtype=wide)
    if a.dtype != wide and a.is_cuda:  # only there can the result of a product have another dtype
        if add:
            return torch.addmm(out, a, b, wide, out=out)
        return torch.mm(a, b, wide, out=out)
    a, b = a.to(wide), b.to(wide)
    return torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)


def _accumulate_by_loops(inputs: _Inputs, sums: _Sums) -> None:
    """Add rows to the sums in bfloat16: one loop turns a row's scores into gradients, in the cache."""
    hidden, weight, bias, labels, factors = inputs
    matrix = weight.to(hidden.dtype)
    wide = sums.d_hidden.dtype
    shift = hidden.new_zeros(len(weight), dtype=wide) if bias is None else bias.to(wide)
    needs_gradients = sums.d_hidden.numel() > 0
    rows_each = max(MIN_ROWS, GROUP_BYTES // (len(weight) * hidden.element_size()) // STEP * STEP)
    for start in range(0, len(hidden), rows_each):
        rows = slice(start, start + rows_each)
        h = hidden[rows]
        scores = h @ matrix.t()  # (rows, V); the loop writes gradients over them
        losses, hits = score_gradients(
            scores, shift, labels[rows], factors[rows], sums.d_bias, write=needs_gradients
        )
        sums.total.add_((losses * factors[rows]).sum())
        sums.hits.add_(hits.sum())
        if needs_gradients:
            _add_product(sums.d_hidden[rows], scores, matrix, first=True)
            # oneDNN reads scores slowly when transposed: 2,048 x 16,384 took 1.6 times as long (AMX).
            add_transposed(sums.d_weight, h.t().contiguous() @ scores, first=start == 0)


def score_gradients(
    scores: Tensor, bias: Tensor, labels: Tensor, scales: Tensor, sums: Tensor, *, write: bool
) -> tuple[Tensor, Tensor]:
    """Return losses and hits, float32 (rows,), of `gradient_loops.score_gradients`."""
    from brimful.kernels import gradient_loops  # needs numba

    losses, hits = scales.new_empty(2, len(scores))
    pieces = bfloat16.split_rows(scores, labels, scales, losses, hits)
    worker_sums = scales.new_zeros(len(pieces), scores.shape[1])  # so that workers do not write to one place
    bias_array = bias.detach().numpy()
    items = [(*piece, bias_array, row, write) for piece, row in zip(pieces, worker_sums.numpy(), strict=True)]
    run_loops(gradient_loops.score_gradients, items)
    if write and len(sums):  # empty without a bias
        sums += worker_sums.sum(0)
    return losses, hits


def add_transposed(total: Tensor, x: Tensor, *, first: bool) -> None:
    """Compute total += x.t(), or total = x.t() if `first`: `total` is float32, x bfloat16."""
    from brimful.kernels import gradient_loops  # needs numba

    rows_each = max(1, -(-len(total) // count_workers()))
    pieces = zip(x.split(rows_each, 1), total.split(rows_each), strict=True)
    items = [(bfloat16.as_int16(columns), rows.numpy(), first) for columns, rows in pieces]
    run_loops(gradient_loops.add_transposed, items)


def _accumulate_by_tiles(inputs: _Inputs, sums: _Sums) -> None:
    """Add rows to the sums in any other format, where all labels are in the vocabulary."""
    hidden, weight, bias, labels, factors = inputs
    for rows in _slices(len(hidden), GROUP_BYTES // (len(weight) * hidden.element_size())):
        group = _Inputs(hidden[rows], weight, bias, labels[rows], factors[rows])
        _accumulate_group(group, sums._replace(d_hidden=sums.d_hidden[rows]), first=rows.start == 0)


def _accumulate_group(inputs: _Inputs, sums: _Sums, *, first: bool) -> None:
    """Add one group to the sums. What `d_weight` held before the first group is written over."""
    hidden, weight, bias, labels, factors = inputs
    needs_gradients = sums.d_hidden.numel() > 0
    threads = count_workers()
    tiles = list(_slices(len(weight), TILE_BYTES // (len(hidden) * 4), threads))  # slices of the vocabulary
    tile_softmax: list[Any] = [None] * len(tiles)
    if needs_gradients:
        tile_softmax = [hidden.new_empty(len(hidden), tile.stop - tile.start) for tile in tiles]
    # Of each tile and row: the logarithm of the softmax's normalizer, the label's score, the highest score.
    normalizers, label_scores, highest = sums.total.new_empty(3, len(tiles), len(hidden))

    def first_pass(
        columns: slice, keep: Tensor | None, normalizer: Tensor, label_score: Tensor, top: Tensor
    ) -> None:
        b = None if bias is None else bias[columns].to(hidden.dtype)
        scores = F.linear(hidden, weight[columns].to(hidden.dtype), b)  # (rows, tile)
        p = torch.softmax(scores, 1, dtype=label_score.dtype)
        top.copy_(scores.amax(1))
        # The highest probability is exp(highest score - normalizer), so no second exp is needed.
        torch.sub(top, p.amax(1).log_(), out=normalizer)
        index, is_inside = _find_label(labels, columns)
        label_score.copy_(torch.where(is_inside, scores.gather(1, index)[:, 0], -torch.inf))
        if keep is not None:
            keep.copy_(p)

    items = zip(tiles, tile_softmax, normalizers, label_scores, highest, strict=True)
    run_jobs(first_pass, items, device=hidden.device)
    normalizer, label_score = normalizers.logsumexp(0), label_scores.amax(0)  # (rows,)
    sums.hits.add_((label_score >= highest.amax(0)).sum())
    losses = normalizer - label_score
    sums.total.add_((losses * factors).sum())
    if not needs_gradients:
        return
    d_label_score = torch.expm1(-losses).mul_(factors).to(hidden.dtype)  # p - 1 for the label, rounded last
    # A tile's softmax times exp(its normalizer - the row's normalizer) is the row's softmax.
    tile_factors = (normalizers - normalizer).exp_().mul_(factors)  # (tiles, rows)

    def second_pass(columns: slice, d_scores: Tensor, factor: Tensor) -> None:
        d_scores.mul_(factor[:, None])
        index, is_inside = _find_label(labels, columns)
        d_label = torch.where(is_inside[:, None], d_label_score[:, None], d_scores.gather(1, index))
        d_scores.scatter_(1, index, d_label)
        _add_product(sums.d_weight[columns], d_scores.t(), hidden, first=first)
        if bias is not None:
            sums.d_bias[columns] += d_scores.sum(0, dtype=sums.d_bias.dtype)

    def multiply_rows(d_rows: Tensor, *d_scores: Tensor) -> None:
        for columns, tile in zip(tiles, d_scores, strict=True):
            _add_product(d_rows, tile, weight[columns].to(tile.dtype), first=columns.start == 0)

    run_jobs(second_pass, zip(tiles, tile_softmax, tile_factors, strict=True), device=hidden.device)
    # By rows, since each row of d_hidden sums over all tiles.
    parts = (tensor.tensor_split(threads) for tensor in (sums.d_hidden, *tile_softmax))
    run_jobs(multiply_rows, zip(*parts, strict=True), device=hidden.device)


def _slices(size: int, most: int, threads: int = 1) -> Iterator[slice]:
    """Return slices that cover `size`, at most max(`most`, MIN_ROWS) long, a multiple of `threads`."""
    count = max(1, -(-size // (max(most, MIN_ROWS) * threads))) * threads
    each = max(1, -(-size // count))
    return (slice(start, min(start + each, size)) for start in range(0, size, each))


def _find_label(labels: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Return each row's label as a column of a tile, (rows, 1), and whether it is in this tile."""
    is_inside = (labels >= columns.start) & (labels < columns.stop)
    return (labels - columns.start).clamp(0, columns.stop - columns.start - 1)[:, None], is_inside


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """Compute total += a @ b, or total = a @ b if `first`."""
    if total.dtype == a.dtype:
        torch.addmm(total, a, b, beta=0 if first else 1, out=total)
    elif first:
        total.copy_(a @ b)
    else:
        total.add_((a @ b).to(total.dtype))  # adding across dtypes is 10 times slower


@_sum_and_gradients.register_fake
def _(hidden, weight, bias, labels, weights, needs_gradients):
    return tuple(_make_sums(hidden, weight, bias, needs_gradients))


def _save(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[2:])
    ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs[:3]]


def _backward(ctx, grad, *_):
    scaled = []
    for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True):
        has_gradient = dtype is not None and grad is not None
        scaled.append((gradient * grad).to(dtype) if has_gradient else None)
    return *scaled, None, None, None


_sum_and_gradients.register_autograd(_backward, setup_context=_save)
