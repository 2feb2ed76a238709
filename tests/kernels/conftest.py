"""Tests of fast forms run them, also where BRIMFUL_KERNELS=off tests everything else without."""

import pytest

from brimful.model import fast_forms


@pytest.fixture(autouse=True)
def _enable_fast_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fast_forms.SWITCH, "on")
    monkeypatch.setattr(fast_forms, "_is_disabled", False)
