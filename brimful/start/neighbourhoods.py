"""Vectors of pieces from the pieces around them, which a corpus gives before any training.

The positive pointwise mutual information of two pieces is log(p(a, b) / (p(a) p(b))), where it is above 0
(Levy, Goldberg and Dagan 2015, "Improving Distributional Similarity", section 2.1). Here b is at most WINDOW
pieces before or after a, and counts 1 / distance. The vectors are the eigenvectors of this symmetric matrix
whose eigenvalues have the largest absolute values, times the roots of these values.

Floor: tokens * 2 * WINDOW additions to counters that are in the cache, and for each of PRODUCTS products
2 * entries * width flops.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy import ndarray

from brimful.base.compiled import compiled, compiled_fused
from brimful.base.cpu_threads import count_workers, run_loops, use_threads
from brimful.corpus.frequencies import sampled_runs
from brimful.corpus.shards import Corpus
from brimful.packing.assignment import group_places
from brimful.packing.histogram import cumulate

WINDOW = 4
"""Pieces before and after a piece that count as its neighbours."""
SAMPLE_TOKENS = 16_000_000
"""Tokens that are read of all corpora together."""
PRODUCTS = 4
"""Iterations: each multiplies the vectors by the matrix."""
EXTRA_VECTORS = 32
"""Vectors that are iterated in addition to the result, so that its last vectors converge."""


def piece_vectors(corpora: Mapping[Corpus, float], width: int, seed: int) -> ndarray:
    """Return a vector for each piece of the vocabulary, float32 (V, width); zeros for pieces without data.

    The result depends on the data and the seed, not on the number of threads.

    Args:
        corpora: corpora of one tokenizer, and their proportions of the SAMPLE_TOKENS that are read.
        seed: the seed of the vectors that the iteration starts from.
    """
    vocabulary = next(iter(corpora)).vocabulary_size
    matrix = compute_information(_sample_tokens(corpora), vocabulary)
    eigenvectors = _eigenvectors(matrix, min(vocabulary, width + EXTRA_VECTORS), seed)[:, :width]
    vectors = np.zeros((vocabulary, width), np.float32)
    vectors[:, : eigenvectors.shape[1]] = eigenvectors
    # Exactly 0 for pieces without neighbours, where the iteration leaves rounding errors.
    vectors[np.diff(matrix[0]) == 0] = 0
    return vectors


def _eigenvectors(matrix: tuple[ndarray, ndarray, ndarray], number: int, seed: int) -> ndarray:
    """Return eigenvectors times the roots of their absolute eigenvalues, largest first: orthogonal iteration.

    Eigenvectors of nearly equal eigenvalues turn with the last bits of the numbers. So the numbers are
    float64, on one thread, in memory that torch aligns: the same command gives the same weights.
    """
    size = len(matrix[0]) - 1
    vectors = torch.from_numpy(np.random.default_rng(seed).standard_normal((size, number))).clone()
    all_threads = torch.get_num_threads()
    with use_threads(1):
        for _ in range(PRODUCTS):
            basis, _ = torch.linalg.qr(vectors)
            with use_threads(all_threads):  # one thread computes a row: no bit depends on their number
                vectors = _product(*matrix, basis.contiguous())
        # Rayleigh-Ritz: the eigenvectors of the matrix within the space of the basis.
        eigenvalues, inner = torch.linalg.eigh(basis.mT @ vectors)
        sizes, order = eigenvalues.abs().sort(descending=True)
        return (basis @ (inner[:, order] * sizes.sqrt())).float().numpy()


def _sample_tokens(corpora: Mapping[Corpus, float]) -> ndarray:
    runs = []
    total = sum(corpora.values())
    for corpus, share in corpora.items():
        for run in sampled_runs(corpus, max(1, round(SAMPLE_TOKENS * share / total))):
            runs.append(np.asarray(run, dtype=np.int32))
    return np.concatenate(runs)


def compute_information(tokens: ndarray, vocabulary: int) -> tuple[ndarray, ndarray, ndarray]:
    """Compute the positive pointwise mutual information of pieces, as rows of a sparse symmetric matrix.

    The tokens are int32 (tokens,). Pairs across the ends of documents count too: they are few.

    Returns:
        the beginnings of rows, int64 (V + 1,); the columns of each row in any order, int32; float32 values.
    """
    counts = np.bincount(tokens, minlength=vocabulary)
    starts = cumulate(counts)
    places = np.empty(len(tokens), np.int64)  # of each piece, one piece after the other
    group_places(tokens, starts, places)
    shares = (counts / max(1, len(tokens))).astype(np.float32)
    sizes = np.zeros(vocabulary, np.int64)
    jobs = []
    for first, last in _divide(starts):
        # A piece has at most as many neighbours as the vocabulary, and as its occurrences have places around.
        room = int(np.minimum(2 * WINDOW * counts[first:last], vocabulary).sum())
        columns, values = np.empty(room, np.int32), np.empty(room, np.float32)
        jobs.append((tokens, starts, places, shares, first, last, columns, values, sizes))
    run_loops(_rows, jobs)
    all_columns, all_values = [], []
    for *_, first, last, columns, values, _ in jobs:
        size = int(sizes[first:last].sum())
        all_columns.append(columns[:size])
        all_values.append(values[:size])
    return cumulate(sizes), np.concatenate(all_columns), np.concatenate(all_values)


@compiled
def _rows(
    tokens: ndarray,
    starts: ndarray,
    places: ndarray,
    shares: ndarray,
    first: int,
    last: int,
    columns: ndarray,
    values: ndarray,
    sizes: ndarray,
) -> None:
    """Fill the rows of the pieces from `first` to `last`, one after the other."""
    near = np.zeros(len(shares), np.float32)
    whole = np.float32(0.0)
    for distance in range(1, WINDOW + 1):
        whole += np.float32(2.0) / np.float32(distance)
    whole *= np.float32(len(tokens))
    neighbours = np.empty(len(shares), np.int32)  # of this piece: only their counters are set back to 0
    at = 0
    for piece in range(first, last):
        count = 0
        for place in places[starts[piece] : starts[piece + 1]]:
            for distance in range(1, WINDOW + 1):
                for other in (place - distance, place + distance):
                    if 0 <= other < len(tokens):
                        neighbour = tokens[other]
                        if near[neighbour] == 0:
                            neighbours[count] = neighbour
                            count += 1
                        near[neighbour] += np.float32(1.0) / np.float32(distance)
        begin = at
        for i in range(count):
            neighbour = neighbours[i]
            ratio = near[neighbour] / (whole * shares[piece] * shares[neighbour])
            near[neighbour] = 0
            if ratio > 1:
                columns[at], values[at] = neighbour, np.log(ratio)
                at += 1
        sizes[piece] = at - begin


def _divide(starts: ndarray) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of parts with about as many entries each, one part for each worker."""
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], count_workers() + 1)[1:-1])
    return pairwise([0, *cuts.tolist(), len(starts) - 1])


def _product(starts: ndarray, columns: ndarray, values: ndarray, x: torch.Tensor) -> torch.Tensor:
    """Multiply the matrix of `compute_information` by x: float64 (V, n)."""
    out = torch.zeros_like(x)
    jobs = [(starts, columns, values, x.numpy(), *part, out.numpy()) for part in _divide(starts)]
    run_loops(_add_products, jobs)
    return out


@compiled_fused
def _add_products(
    starts: ndarray,
    columns: ndarray,
    values: ndarray,
    x: ndarray,
    first: int,
    last: int,
    out: ndarray,
) -> None:
    for row in range(first, last):
        target = out[row]
        for i in range(starts[row], starts[row + 1]):
            source, value = x[columns[i]], values[i]
            for j in range(len(target)):
                target[j] += value * source[j]
