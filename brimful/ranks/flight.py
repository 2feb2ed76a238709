"""The first collective on which ranks disagree, from the records that torch keeps of them.

Torch's flight recorder keeps the last collectives of a process in a ring buffer and gives them as JSON
(docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html; the code is in
torch/csrc/distributed/c10d/FlightRecorder.hpp). NCCL and gloo write the same format; without NCCL, the
recorder is gloo's.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]
Trace = Mapping[str, Any]

KEPT = 2000
"""Collectives that the recorder keeps, 2 to 3 MB of host memory."""
SENT = 64
"""The newest collectives that a rank sends to the others."""


def record() -> None:
    """Let torch record collectives, if the environment does not say how many. Call it before the first."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(KEPT))


def own_trace() -> Trace | None:
    """The newest collectives of this process, in the recorder's format; None if torch cannot say."""
    from torch._C import _distributed_c10d as c10d

    dump = getattr(c10d, "_dump_nccl_trace_json", None) or getattr(c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return None
    try:
        trace = json.loads(dump(True, False))
    except (RuntimeError, ValueError):
        return None
    entries = sorted(trace.get("entries", []), key=lambda entry: entry["record_id"])[-SENT:]
    kept = {"collective_seq_id", "process_group", "profiling_name", "input_sizes", "input_dtypes"}
    kept |= {"record_id", "is_p2p", "retired", "state"}
    return {"entries": [{key: entry.get(key) for key in kept} for entry in entries]}


def first_disagreement(traces: Mapping[int, Trace]) -> str:
    """The first collective that some ranks have begun and others have not, or have begun as another one.

    Only the collectives that all traces reach back to are compared, one process group after the other.

    Args:
        traces: of some ranks, by rank. Each has `entries` with `collective_seq_id`, `process_group` (its name
            and description), `profiling_name` ("nccl:all_reduce"), `input_sizes`, `input_dtypes`, `is_p2p`,
            `retired` and `state` ("scheduled", "started" or "completed").

    Returns:
        a clause such as "nccl:all_reduce 37 of Float [1024] has begun on rank 0, not on rank 1"; "" if the
        ranks agree.
    """
    groups: dict[str, dict[int, dict[int, Entry]]] = defaultdict(dict)
    for rank, trace in traces.items():
        for entry in trace.get("entries", []):
            if not entry.get("is_p2p"):
                group = groups[str(entry["process_group"][0])].setdefault(rank, {})
                group[int(entry["collective_seq_id"])] = entry
    for _, by_rank in sorted(groups.items()):
        start = max(min(entries) for entries in by_rank.values())
        for number in range(start, max(max(entries) for entries in by_rank.values()) + 1):
            if found := _disagreement(number, by_rank):
                return found
    return ""


def _disagreement(number: int, by_rank: Mapping[int, Mapping[int, Entry]]) -> str:
    """What ranks disagree on in the collective of this number, or "" if they agree."""
    begun = {rank: entries[number] for rank, entries in by_rank.items() if number in entries}
    kinds: dict[str, list[int]] = defaultdict(list)
    for rank, entry in sorted(begun.items()):
        kinds[_kind(entry, number)].append(rank)
    if len(kinds) > 1:
        return "collective " + ", ".join(f"{kind} on {_ranks(ranks)}" for kind, ranks in kinds.items())
    absent = [rank for rank in by_rank if rank not in begun]
    if absent:
        return f"{next(iter(kinds))} has begun on {_ranks(list(begun))}, not on {_ranks(absent)}"
    waiting = [rank for rank, entry in begun.items() if entry.get("state") == "scheduled"]
    started = [rank for rank, entry in begun.items() if entry.get("state") == "started"]
    if waiting and started and not any(begun[rank].get("retired") for rank in waiting):
        kind = next(iter(kinds))
        return f"{kind} runs on the device of {_ranks(started)}, and is only scheduled on {_ranks(waiting)}"
    return ""


def _kind(entry: Entry, number: int) -> str:
    """What a collective is: its name, number, and the type and sizes of its input."""
    types = "/".join(dict.fromkeys(map(str, entry.get("input_dtypes") or [])))
    sizes = " ".join(map(str, entry.get("input_sizes") or []))
    of = f" of {types} {sizes}" if types else ""
    return f"{entry['profiling_name']} {number}{of}"


def _ranks(ranks: Sequence[int]) -> str:
    """Rank 1; ranks 0, 2 and 3."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
