"""What tests of a GPU share. With torch, numpy, scipy, safetensors, tokenizers and pytest a checkout is all:

PYTHONPATH=tests python -m pytest -c /dev/null --rootdir . --noconftest tests/gpu
"""

import os
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch, pack
from brimful.model.attention import Layout, choose_backend

NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch warns of its own code when it compiles, and of cuBLAS in a new thread.
    pytest.mark.filterwarnings("default", "error:flex_attention called without"),
]
DEVICE = torch.device("cuda", 0)


def new_seed() -> int:
    """A seed that is printed; BRIMFUL_TEST_SEED=N gives it again."""
    value = int(os.environ.get("BRIMFUL_TEST_SEED") or random.SystemRandom().randrange(2**31))
    print(f"BRIMFUL_TEST_SEED={value}")
    torch.manual_seed(value)
    return value


def find_backend(name: str) -> type[Layout]:
    """The backend of this name in bf16; the test is skipped where the GPU has none."""
    try:
        return choose_backend("cuda", torch.bfloat16, name)
    except BrimfulError as error:
        pytest.skip(str(error))


def masked_row(
    draw: np.random.Generator,
    lengths: Sequence[int],
    vocabulary: int,
    used: int,
    predictions: int,
    **room: int,
) -> PackedBatch:
    """Random sequences, `used` of whose tokens are predicted."""
    row = pack([draw.integers(0, vocabulary, n) for n in lengths], max_length=512, pad=0, **room)
    positions, labels = np.zeros(predictions, np.int64), np.full(predictions, IGNORED)
    positions[:used] = np.sort(draw.choice(row.real_tokens, used, replace=False))
    labels[:used] = draw.integers(0, vocabulary, used)
    return replace(row, mlm_positions=torch.from_numpy(positions), mlm_labels=torch.from_numpy(labels))
