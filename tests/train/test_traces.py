"""Traces of several ranks as one: clocks that differ, waiting and transfer, ids that stay apart."""

from typing import Any

from brimful.train.traces import MARK, aligned, merged, sums_of


def trace(clock: float, sums: list[tuple[float, float]], pid: int = 7) -> dict[str, Any]:
    """A rank's trace by a clock that shows `clock` at the mark: an early mark, the mark, and the sums, given
    relative to it."""

    def span(name: str, begin: float, end: float, **more: Any) -> dict[str, Any]:
        place = {"ph": "X", "pid": pid, "tid": pid, "ts": clock + begin, "dur": end - begin}
        return {**place, "name": name, "cat": "user_annotation", **more}

    events = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": clock, "args": {"name": "python"}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}},
        span(MARK, -90.0, -20.0),
        span(MARK, 0.0, 1.0),
        *(span("communication", begin, end) for begin, end in reversed(sums)),
        span("aten::mm", 2.0, 3.0, cat="cpu_op"),
        {"ph": "s", "cat": "ac2g", "id": 4, "name": "ac2g", "pid": pid, "tid": pid, "ts": clock + 2.0},
        {"ph": "X", "cat": "Trace", "name": "Profiler", "pid": "Spans", "tid": "x", "ts": clock, "dur": 9.0},
    ]
    return {"schemaVersion": 1, "host_name": "a", "traceEvents": events}


TRACES = [
    trace(1000.0, [(10.0, 50.0), (100.0, 120.0)]),
    trace(-5e6, [(40.0, 51.0), (90.0, 121.0)]),
]


def test_a_rank_waits_until_the_last_one_has_come():
    first, second = sums_of(aligned(TRACES))
    assert first == [(1010.0, 1040.0, 1050.0, 1), (1100.0, 1100.0, 1120.0, 0)]
    assert second == [(1040.0, 1040.0, 1051.0, 1), (1090.0, 1100.0, 1121.0, 0)]


def test_a_wait_is_never_longer_than_the_sums():
    """The marks are as far apart as ranks leave a barrier: a span may seem to end before the last begins."""
    ((part,), _) = sums_of(aligned([trace(0.0, [(0.0, 5.0)]), trace(0.0, [(6.0, 9.0)])]))
    assert part == (0.0, 5.0, 5.0, 1)


def test_all_ranks_are_in_one_trace():
    traces = aligned(TRACES)
    events = merged(traces, sums_of(traces), ["a", "b"])["traceEvents"]
    assert len(events) == 2 * len(TRACES[0]["traceEvents"]) + 6
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["rank 0 (a): python", "rank 1 (b): python"]
    products = [event for event in events if event["name"] == "aten::mm"]
    assert [event["ts"] for event in products] == [1002.0, 1002.0]
    assert products[0]["pid"] != products[1]["pid"]
    assert len({event["id"] for event in events if event.get("cat") == "ac2g"}) == 2
    spans = {event["pid"] for event in events if event["name"] == "Profiler"}
    assert len(spans | {event["pid"] for event in products}) == 4
    shown = [(e["name"], e["ts"], e["dur"]) for e in events if e.get("cat") == "ranks"]
    assert shown == [
        ("waiting for rank 1", 1010.0, 30.0),
        ("transfer", 1040.0, 10.0),
        ("transfer", 1100.0, 20.0),
        ("transfer", 1040.0, 11.0),
        ("waiting for rank 0", 1090.0, 10.0),
        ("transfer", 1100.0, 21.0),
    ]
