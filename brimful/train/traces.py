"""The Chrome traces of all ranks as one, on one clock, which tells waiting for other ranks from transfer.

Ranks leave a barrier at about the same time. So the mark that each makes after it is the same moment in all
traces, whatever the clocks of their hosts say. In an update, all ranks enter "communication". Until the last
one comes a rank waits, and the rest is transfer. Where the last one has sent everything in its backward pass,
the others may go on before it comes: then all is waiting.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MARK = "ranks are aligned"
COMMUNICATION = "communication"
RANK_IDS = 1 << 20
"""Ids of a rank's processes; no trace has more."""

Trace = Mapping[str, Any]


class Sums(NamedTuple):
    """A rank's part in the sums of an update, in microseconds of the common clock.

    Attributes:
        begin: when the rank came.
        complete: when the last rank came; no later than `end`.
        end: when the rank went on.
        last: the rank that came last.
    """

    begin: float
    complete: float
    end: float
    last: int


def sums_of(traces: Sequence[Trace]) -> list[list[Sums]]:
    """Of each rank, its part in the sums of each update; `traces` are aligned."""
    spans = [_spans(trace, COMMUNICATION) for trace in traces]
    found: list[list[Sums]] = [[] for _ in traces]
    for update in zip(*spans, strict=False):
        last = max(range(len(update)), key=lambda rank: update[rank][0])
        for rank, (begin, end) in enumerate(update):
            found[rank].append(Sums(begin, min(max(begin, update[last][0]), end), end, last))
    return found


def aligned(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """The traces, shifted so that the last `MARK` of each stands where the first rank's stands.

    Args:
        traces: as torch.profiler exports them, by rank.
    """
    marks = [_spans(trace, MARK)[-1][0] for trace in traces]
    return [
        {**trace, "traceEvents": [_later(event, marks[0] - mark) for event in trace["traceEvents"]]}
        for trace, mark in zip(traces, marks, strict=True)
    ]


def merged(traces: Sequence[Trace], sums: Sequence[Sequence[Sums]], hosts: Sequence[str]) -> dict[str, Any]:
    """One trace of all ranks. Each rank's processes have its number and host in their names, and a thread
    "sums over ranks" with the spans "waiting for rank N" and "transfer".

    Args:
        traces: aligned, by rank.
        sums: `sums_of(traces)`.
        hosts: the host of each rank.
    """
    events: list[dict[str, Any]] = []
    for rank, (trace, parts) in enumerate(zip(traces, sums, strict=True)):
        ids: dict[Any, int] = {}
        for event in trace["traceEvents"]:
            old = event.get("pid", "")
            pid = ids.setdefault(old, rank * RANK_IDS + len(ids))
            events.append(_renamed(event, pid, rank, hosts[rank]))
        pid = ids[_main_process(trace)]
        track = {"pid": pid, "tid": "sums over ranks"}
        for part in parts:
            names = (
                (f"waiting for rank {part.last}", part.begin, part.complete),
                ("transfer", part.complete, part.end),
            )
            events += [
                {"ph": "X", "cat": "ranks", "name": name, "ts": begin, "dur": end - begin, **track}
                for name, begin, end in names
                if end > begin
            ]
    return {**traces[0], "traceEvents": events, "host_name": ", ".join(dict.fromkeys(hosts))}


def _spans(trace: Trace, name: str) -> list[tuple[float, float]]:
    """Begin and end of the spans of a name, in order."""
    found = [
        (event["ts"], event["ts"] + event["dur"])
        for event in trace["traceEvents"]
        if event.get("name") == name and event.get("cat") == "user_annotation"
    ]
    return sorted(found)


def _main_process(trace: Trace) -> Any:
    """The process whose main thread has the spans."""
    return next(event["pid"] for event in trace["traceEvents"] if event.get("name") == MARK)


def _later(event: Mapping[str, Any], microseconds: float) -> dict[str, Any]:
    return {**event, "ts": event["ts"] + microseconds} if "ts" in event else dict(event)


def _renamed(event: Mapping[str, Any], pid: int, rank: int, host: str) -> dict[str, Any]:
    """An event with ids that no other rank has."""
    changed = {**event, "pid": pid}
    if event.get("name") == "process_name":
        changed["args"] = {"name": f"rank {rank} ({host}): {event['args']['name']}"}
    elif event.get("name") == "process_sort_index":
        changed["args"] = {"sort_index": pid}
    if isinstance(event.get("id"), int):  # of flows, from a call to its kernel
        changed["id"] = f"{rank}:{event['id']}"
    return changed
