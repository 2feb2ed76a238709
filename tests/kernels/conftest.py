"""Tests of fast forms run them, also where BRIMFUL_KERNELS=off tests everything else without."""

import pytest
import torch

from brimful.model import fast_forms


@pytest.fixture(autouse=True)
def _fast_forms_and_random_numbers(monkeypatch, seed):
    monkeypatch.setenv(fast_forms.SWITCH, "on")
    monkeypatch.setattr(fast_forms, "_is_disabled", False)
    torch.manual_seed(seed)
