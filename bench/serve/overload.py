"""Ten times the capacity, a tenth of it broken requests and clients that leave; then SIGTERM under that."""

import math
import threading
import time
from typing import Any

from bench.common.record import Row
from bench.common.turns import Worker
from bench.serve.requests import BROKEN, GOOD
from bench.serve.server import Server
from bench.serve.sides import CONNECTIONS, Side

TIMES, BROKEN_SHARE = 10, 0.1
DRAIN_SECONDS = 4.0


def overload(side: Side) -> None:
    """What became of the requests, the goodput, the memory; and whether the end lost a request."""
    options = side.options
    with side.serve() as server, side.client(server, options.batch) as client:
        peaks = [side.load(server, client, "closed", connections=n, duration=5.0) for n in CONNECTIONS]
        capacity = max(peak["texts_per_second"] for peak in peaks)
        load = {"rate": TIMES * capacity / options.batch, "broken": BROKEN_SHARE}
        row, memory = watched(side, server, client, options.overload_seconds, **load)
        end, _ = watched(side, server, client, DRAIN_SECONDS, ends=True, **load)
        end["exit"] = server.process.wait(60)
        checked = side.check(client)
    goodput = row["texts_per_second"] / capacity
    facts = {"batch": options.batch, "capacity": capacity, "goodput": goodput, "resident_mb": memory}
    side.add(question="overload", **facts, **row, undeserved=undeserved(row), **checked)
    side.add(question="drain", **end, undeserved=undeserved(end, ends=True))
    print(
        f"{side.model.name}, {side.name}: {row['requests']:,} requests, {load['rate']:,.0f} a second wanted"
    )
    for kind, outcomes in row["outcomes"].items():
        print(f"  {kind:14} {outcomes}")
    print(
        f"  undeserved {undeserved(row)}; goodput {goodput:.2f} of {capacity:,.0f} texts/s;"
        f" {checked['wrong']} of {checked['compared']:,} different answers wrong\n"
        f"  at the end: {end['lost']} lost that were sent before SIGTERM, exit {end['exit']}",
        flush=True,
    )


def watched(
    side: Side, server: Server, client: Worker, seconds: float, *, ends: bool = False, **load: Any
) -> tuple[Row, list[float]]:
    """An open loop's row, and the server's resident MiB in each second of it. A server that ends gets SIGTERM
    when half of the time is over. The row counts as `lost` the requests without an answer that were sent
    before it."""
    found: dict[str, Any] = {}
    memory = []

    def ask() -> None:
        found.update(side.load(server, client, "opened", duration=seconds, **load))

    thread = threading.Thread(target=ask)
    thread.start()
    ended = math.inf
    if ends:
        time.sleep(seconds / 2)
        ended = time.monotonic()
        server.process.terminate()
    while thread.is_alive():
        if ended == math.inf:
            memory.append(server.resident_mb())
        thread.join(1.0)
    losses = found.pop("losses")
    return found | {"lost": sum(sent < ended for sent in losses)}, memory


def undeserved(row: Row, *, ends: bool = False) -> dict[str, dict[str, int]]:
    """Outcomes by kind other than 200 or what a broken request deserves, and 429. Of a server that ends, 503
    and refused connections are deserved too, and `lost` counts for itself."""
    always = {"429"} | ({"503", "refused", "lost"} if ends else set())
    wrong: dict[str, dict[str, int]] = {}
    for kind, outcomes in row["outcomes"].items():
        deserved = always | ({"200"} if kind == GOOD else BROKEN[kind][1])
        if found := {name: count for name, count in outcomes.items() if name not in deserved}:
            wrong[kind] = found
    return wrong
