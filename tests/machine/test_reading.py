"""How fast files and batches come."""

import os
from types import SimpleNamespace

import pytest

from brimful.machine import reading
from brimful.machine.reading import disk_speed, loader_speed


def test_files_are_read_up_to_a_limit(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in "abc"]
    for path, size in zip(paths, (3 << 20, 0, 1 << 20), strict=True):
        path.write_bytes(os.urandom(size))
    clock = iter(range(10**6))
    monkeypatch.setattr(reading.time, "perf_counter", lambda: next(clock) / 1e3)
    whole = disk_speed(paths)
    monkeypatch.setattr(reading, "MOST_BYTES", 1 << 20)
    assert 0 < disk_speed(paths) != whole > 0
    assert disk_speed(paths[1:2]) == 0.0


def test_a_slow_disk_ends_in_time(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(16 << 20))
    clock = iter(range(10**6))
    monkeypatch.setattr(reading.time, "perf_counter", lambda: 0.4 * next(clock))
    assert disk_speed([path]) > 0
    assert next(clock) < 8


def test_the_loader_is_timed_from_its_second_update(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(reading.time, "perf_counter", lambda: clock[0])

    class Slow:
        def start(self):
            return 0

        def take(self, cursor):
            clock[0] += 10.0 if cursor == 0 else 0.25  # the first one plans
            return [SimpleNamespace(real_tokens=100)] * 2, cursor + 1

    assert loader_speed(Slow(), seconds=1.0) == pytest.approx(800)
