"""Sizes of the linear cross-entropy in tests."""

import pytest

from brimful.kernels import linear_cross_entropy


def never_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scores are few enough for the plain form of the linear cross-entropy, which toy sizes would take."""
    for size in ("PLAIN_BYTES", "PLAIN_BYTES_WITH_LOOPS"):
        monkeypatch.setattr(linear_cross_entropy, size, 0)
