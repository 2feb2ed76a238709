"""How fast files and batches come."""

import errno
import os
from types import SimpleNamespace

import pytest

from brimful.machine import reading
from brimful.machine.reading import disk_speed, loader_speed


def test_files_are_read_up_to_a_limit(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in "abc"]
    for path, size in zip(paths, (3 << 20, 0, 1 << 20), strict=True):
        path.write_bytes(os.urandom(size))
    found = disk_speed(paths)
    assert found.bytes == 4 << 20
    assert found.bytes_per_second > 0
    assert found.reads_per_second > 0
    assert found.cached is None or 0 <= found.cached <= 1
    monkeypatch.setattr(reading, "MOST_BYTES", (3 << 20) + 4096)
    assert disk_speed(paths).bytes == (3 << 20) + 4096


def test_a_slow_disk_ends_in_time(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(16 << 20))
    clock = iter(range(10**6))
    monkeypatch.setattr(reading.time, "perf_counter", lambda: 0.4 * next(clock))
    assert 0 < disk_speed([path]).bytes < 16 << 20


def test_nothing_to_read(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert disk_speed([path]) == (0, 0.0, 0.0, None)


@pytest.mark.parametrize(("answer", "cached"), [(errno.EAGAIN, 0.0), (errno.EOPNOTSUPP, None), (None, 1.0)])
def test_pages_in_memory_are_counted(tmp_path, monkeypatch, answer, cached):
    def preadv(file, buffers, place, flags):
        if answer is not None:
            raise OSError(answer, os.strerror(answer))
        return 1

    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    assert disk_speed([path]).cached == cached


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
