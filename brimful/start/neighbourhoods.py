"""Vectors of pieces from the pieces around them: what a corpus says of its vocabulary before any training.

The positive pointwise mutual information of two pieces is log(p(a, b) / (p(a) p(b))), where it is above 0
(Levy, Goldberg and Dagan 2015, "Improving Distributional Similarity", section 2.1). Here b is at most WINDOW
pieces before or after a, and counts 1 / distance. The vectors are the eigenvectors of this symmetric matrix
whose eigenvalues are largest in size, times the roots of the sizes.

Floor: tokens * 2 * WINDOW additions to counters that are in the cache, and for each of PRODUCTS products
2 * entries * width flops.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import torch

from brimful.base.compiled import compiled, compiled_fused
from brimful.base.cpu_threads import count_workers, run_loops, use_threads
from brimful.corpus.frequencies import sampled_runs
from brimful.corpus.shards import Corpus

WINDOW = 4
SAMPLE = 16_000_000
"""Tokens that are read of all corpora together."""
PRODUCTS = 4
EXTRA = 32
"""Vectors that are iterated beside those that are wanted."""


def piece_vectors(corpora: Mapping[Corpus, float], width: int, seed: int) -> np.ndarray:
    """A vector for each piece of the vocabulary, float32 (V, width); zeros for pieces that do not occur.

    The result depends on the data and the seed, not on the number of threads.

    Args:
        corpora: of one tokenizer; of each, at most its share of SAMPLE tokens is read.
        seed: of the vectors that the iteration starts from.
    """
    vocabulary = next(iter(corpora)).vocabulary_size
    matrix = information(np.concatenate([*_sampled(corpora)]), vocabulary)
    vectors = np.zeros((vocabulary, width), np.float32)
    found = _eigenvectors(matrix, min(vocabulary, width + EXTRA), seed)[:, :width]
    vectors[:, : found.shape[1]] = found
    vectors[np.diff(matrix[0]) == 0] = 0  # not only nearly
    return vectors


def _eigenvectors(matrix: tuple[np.ndarray, np.ndarray, np.ndarray], number: int, seed: int) -> np.ndarray:
    """Eigenvectors times the roots of the eigenvalues' sizes, largest first: orthogonal iteration.

    Eigenvectors of nearly equal eigenvalues turn with the last bits of the numbers. So these are float64, on
    one thread, in memory that torch aligns: the same command gives the same weights.
    """
    size = len(matrix[0]) - 1
    found = torch.from_numpy(np.random.default_rng(seed).standard_normal((size, number))).clone()
    most = torch.get_num_threads()
    with use_threads(1):
        for _ in range(PRODUCTS):
            basis, _ = torch.linalg.qr(found)
            with use_threads(most):
                found = _product(*matrix, basis.contiguous())
        eigenvalues, inner = torch.linalg.eigh(basis.mT @ found)
        sizes, order = eigenvalues.abs().sort(descending=True)
        return (basis @ (inner[:, order] * sizes.sqrt())).float().numpy()


def _sampled(corpora: Mapping[Corpus, float]) -> Iterator[np.ndarray]:
    whole = sum(corpora.values())
    for corpus, share in corpora.items():
        for run in sampled_runs(corpus, max(1, round(SAMPLE * share / whole))):
            yield np.asarray(run, dtype=np.int32)


def information(tokens: np.ndarray, vocabulary: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positive pointwise mutual information of pieces, as the rows of a sparse symmetric matrix.

    Pairs across the ends of documents count too: they are few.

    Args:
        tokens: int32 (tokens,).

    Returns:
        int64 (V + 1,), where each row begins in the other two: int32, columns in no order, and float32.
    """
    counts = np.bincount(tokens, minlength=vocabulary)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = _places(tokens, starts)
    shares = (counts / max(1, len(tokens))).astype(np.float32)
    cuts = np.searchsorted(starts, np.linspace(0, len(tokens), count_workers() + 1)[1:-1])
    ends = [0, *cuts.tolist(), vocabulary]
    sizes = np.zeros(vocabulary, np.int64)
    parts = []
    for first, last in pairwise(ends):
        most = int(np.minimum(2 * WINDOW * counts[first:last], vocabulary).sum())
        parts.append((first, last, np.empty(most, np.int32), np.empty(most, np.float32)))
    run_loops(_rows, [(tokens, starts, places, shares, *part, sizes) for part in parts])
    rows = np.concatenate([[0], np.cumsum(sizes)])
    filled = [int(sizes[first:last].sum()) for first, last, *_ in parts]
    columns = np.concatenate([part[2][:size] for part, size in zip(parts, filled, strict=True)])
    values = np.concatenate([part[3][:size] for part, size in zip(parts, filled, strict=True)])
    return rows, columns, values


@compiled
def _places(tokens: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """int64 (tokens,): the places of each piece, one piece after the other."""
    places, free = np.empty(len(tokens), np.int64), starts.copy()
    for place in range(len(tokens)):
        piece = tokens[place]
        places[free[piece]] = place
        free[piece] += 1
    return places


@compiled
def _rows(
    tokens: np.ndarray,
    starts: np.ndarray,
    places: np.ndarray,
    shares: np.ndarray,
    first: int,
    last: int,
    columns: np.ndarray,
    values: np.ndarray,
    sizes: np.ndarray,
) -> None:
    """The rows of some pieces, one after the other."""
    near = np.zeros(len(shares), np.float32)
    whole = np.float32(0.0)
    for distance in range(1, WINDOW + 1):
        whole += np.float32(2.0) / np.float32(distance)
    whole *= np.float32(len(tokens))
    found = np.empty(len(shares), np.int32)
    at = 0
    for piece in range(first, last):
        count = 0
        for place in places[starts[piece] : starts[piece + 1]]:
            for distance in range(1, WINDOW + 1):
                for other in (place - distance, place + distance):
                    if 0 <= other < len(tokens):
                        neighbour = tokens[other]
                        if near[neighbour] == 0:
                            found[count] = neighbour
                            count += 1
                        near[neighbour] += np.float32(1.0) / np.float32(distance)
        begin = at
        for i in range(count):
            neighbour = found[i]
            ratio = near[neighbour] / (whole * shares[piece] * shares[neighbour])
            near[neighbour] = 0
            if ratio > 1:
                columns[at], values[at] = neighbour, np.log(ratio)
                at += 1
        sizes[piece] = at - begin


def _product(starts: np.ndarray, columns: np.ndarray, values: np.ndarray, x: torch.Tensor) -> torch.Tensor:
    """The matrix of `information` times x: float64 (V, n)."""
    out = torch.zeros_like(x)
    ends = np.searchsorted(starts, np.linspace(0, starts[-1], count_workers() + 1)[1:-1])
    items = pairwise([0, *ends.tolist(), len(x)])
    run_loops(_add_products, [(starts, columns, values, x.numpy(), *item, out.numpy()) for item in items])
    return out


@compiled_fused
def _add_products(
    starts: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    x: np.ndarray,
    first: int,
    last: int,
    out: np.ndarray,
) -> None:
    for row in range(first, last):
        target = out[row]
        for i in range(starts[row], starts[row + 1]):
            source, value = x[columns[i]], values[i]
            for j in range(len(target)):
                target[j] += value * source[j]
