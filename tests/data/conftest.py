"""Small blocks and a small corpus for tests of streams."""

import numpy as np
import pytest

from brimful.base import storage
from brimful.data import blocks
from builders.streams import toy_corpus


@pytest.fixture
def no_sync(monkeypatch):
    """Files are not forced to the disk: no test pulls the plug after writing them."""
    monkeypatch.setattr(storage, "_sync", lambda path: None)


@pytest.fixture
def six_row_blocks(no_sync, monkeypatch):
    """Blocks of about six rows, so that even a toy corpus has several."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 6)


@pytest.fixture
def corpus(tmp_path, seed):
    """Sixty documents of 1 to 119 tokens."""
    lengths = np.random.default_rng(seed).integers(1, 120, 60)
    return toy_corpus(tmp_path / "data", lengths.tolist(), seed)
