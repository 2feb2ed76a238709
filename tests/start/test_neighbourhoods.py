"""Vectors of pieces from the pieces around them, against dense matrices and sums in float64."""

import numpy as np
import pytest
import torch

from brimful.start.neighbourhoods import EXTRA_VECTORS, WINDOW, compute_information, piece_vectors

VOCABULARY = 300


def random_tokens(seed: int) -> np.ndarray:
    """Frequencies that differ by far; some pieces never occur."""
    random = np.random.default_rng(seed)
    return np.minimum(random.zipf(1.3, 20_000), VOCABULARY - 5).astype(np.int32)


def dense(tokens: np.ndarray) -> np.ndarray:
    """The matrix of `compute_information` by its definition, float64."""
    near = np.zeros((VOCABULARY, VOCABULARY))
    for distance in range(1, WINDOW + 1):
        np.add.at(near, (tokens[:-distance], tokens[distance:]), 1 / distance)
    near += near.T
    shares = np.bincount(tokens, minlength=VOCABULARY) / len(tokens)
    together = near / (2 * len(tokens) * sum(1 / d for d in range(1, WINDOW + 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.maximum(np.log(together / np.outer(shares, shares)), 0))


def filled(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    matrix = np.zeros((VOCABULARY, VOCABULARY))
    matrix[np.repeat(np.arange(VOCABULARY), np.diff(rows)), columns] = values
    return matrix


@pytest.mark.parametrize("length", [None, 1, 2, WINDOW])
def test_information_follows_its_definition(length, seed):
    tokens = random_tokens(seed)[:length]
    rows, columns, values = compute_information(tokens, VOCABULARY)
    assert rows[-1] == len(columns) == len(values)
    # Sums of float32 counts up to some thousands, and the logarithm of a ratio of them.
    np.testing.assert_allclose(filled(rows, columns, values), dense(tokens), atol=2e-4)
    assert not np.diff(rows)[np.bincount(tokens, minlength=VOCABULARY) == 0].any()


class Text:
    """A corpus of one shard, as far as it is read here."""

    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens, self.vocabulary_size = len(tokens), VOCABULARY
        self.shards = [type("Shard", (), {"tokens": tokens})]


def test_vectors_have_most_of_the_matrix(seed):
    """By the sizes of eigenvalues: a few products find the largest, and nearly the others."""
    tokens = random_tokens(seed)
    sizes = np.sort(np.abs(np.linalg.eigvalsh(dense(tokens))))[::-1]
    found = piece_vectors({Text(tokens): 1.0}, 40, seed)  # type: ignore[dict-item]
    assert found.dtype == np.float32
    ours = (found.astype(np.float64) ** 2).sum(0)
    assert ours[0] == pytest.approx(sizes[0], rel=1e-3)
    assert 0.9 * sizes[:40].sum() < ours.sum() < 1.001 * sizes[:40].sum()
    assert not found[np.bincount(tokens, minlength=VOCABULARY) == 0].any()


def test_as_many_vectors_as_pieces_have_all_of_it_and_more_are_zero(seed):
    tokens = random_tokens(seed)
    eigenvalues, eigenvectors = np.linalg.eigh(dense(tokens))
    columns = VOCABULARY + EXTRA_VECTORS + 9
    found = piece_vectors({Text(tokens): 1.0}, columns, seed).astype(np.float64)  # type: ignore[dict-item]
    wanted = eigenvectors * np.abs(eigenvalues) @ eigenvectors.T
    np.testing.assert_allclose(found @ found.T, wanted, atol=2e-3)
    assert found.shape == (VOCABULARY, columns)
    assert not found[:, VOCABULARY:].any()


def test_the_number_of_threads_changes_no_bit(seed):
    text, results, before = Text(random_tokens(seed)), [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(piece_vectors({text: 1.0}, 24, seed))  # type: ignore[dict-item]
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert all(np.array_equal(results[0], other) for other in results[1:])
