"""Reads what the recording device recorded, in the process that runs on it."""

import collections
import ctypes
import os
import tempfile
import traceback
from collections.abc import Sequence
from typing import NamedTuple

KINDS = (
    "launch",
    "product",
    "copy",
    "memset",
    "sync",
    "allocate",
    "free",
    "allocate_host",
    "begin_capture",
    "end_capture",
    "graph",
    "event",
    "stream_wait",
    "violation",
    "collective",
)
"""The kinds of entry, in recorder.c's order."""

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)
_kept: list[object] = []


class Entry(NamedTuple):
    """One event on the device.

    Attributes:
        kind: one of `KINDS`.
        name: of the kernel, the product, the copy's direction ...
        stream: an address; "(nil)" is the default stream.
        thread: the host's thread that asked for it.
        graph: the capture that it is part of; 0 = none.
        values: launch: grid x, y, z, threads of a block, bytes of shared memory. product: m, n, k, batch,
            type, leading dimensions of a, b and c. copy: bytes, whether the host waits, whether it is
            pageable. sync, allocate, memset: bytes. graph: the capture that is replayed, and its nodes.
            collective: elements, type.
    """

    kind: str
    name: str
    stream: str
    thread: int
    device: int
    graph: int
    values: tuple[int, ...]


def _device() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def reset() -> None:
    """Forget what was recorded so far."""
    _device().recorder_reset()


def entries() -> list[Entry]:
    """What was recorded since the last `reset`, in order."""
    path = os.path.join(tempfile.gettempdir(), f"recorder-{os.getpid()}.tsv")
    _device().recorder_dump(path.encode())
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    os.remove(path)
    return [
        Entry(kind, name, stream, int(thread), int(device), int(graph), tuple(map(int, values)))
        for kind, name, stream, thread, device, graph, *values in lines
    ]


def replayed(found: Sequence[Entry], captures: Sequence[Entry]) -> list[Entry]:
    """What the device does for these entries: a graph is replaced by what its capture holds, and what is only
    captured is left out.

    Args:
        captures: all entries since the process started, with those of the captures.
    """
    graphs = collections.defaultdict(list)
    for entry in captures:
        if entry.graph:
            graphs[entry.graph].append(entry)
    done = []
    for entry in found:
        if entry.kind == "graph":
            done += graphs[entry.values[0]]
        elif not entry.graph:
            done.append(entry)
    return done


def watch(kinds: Sequence[str] = ("sync", "violation"), depth: int = 9) -> "collections.Counter[str]":
    """A counter of "kind name: Python stack" that fills while the program runs: who makes the host wait."""
    stacks: collections.Counter[str] = collections.Counter()

    def note(kind: int, name: bytes) -> None:
        frames = traceback.extract_stack()[:-1][-depth:]
        where = " < ".join(
            f"{frame.filename.split('site-packages/')[-1]}:{frame.lineno}" for frame in reversed(frames)
        )
        stacks[f"{KINDS[kind]} {name.decode()}: {where}"] += 1

    callback = _CALLBACK(note)
    _kept.append(callback)  # ctypes does not keep it
    _device().recorder_callback(callback, ctypes.c_uint(sum(1 << KINDS.index(kind) for kind in kinds)))
    return stacks
