"""torch's random numbers are those of the test's own seed."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _random(seed):
    torch.manual_seed(seed)
