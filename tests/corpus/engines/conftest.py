"""Pools that start their workers and end them."""

import pytest

from brimful.corpus.engines import local_pool

LOCAL_POOL = local_pool.LocalPool


@pytest.fixture(autouse=True)
def _own_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_pool, "LocalPool", LOCAL_POOL)
