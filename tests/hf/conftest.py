"""Models of these tests have random weights of their test's own."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _random(seed):
    torch.manual_seed(seed)
