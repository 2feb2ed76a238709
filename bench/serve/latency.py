"""Capacity, percentiles of an open loop below it, and the most texts a second with p99 under a bound."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from bench.common.record import Row
from bench.common.turns import Worker
from bench.serve.requests import GOOD
from bench.serve.server import Server, ServerError
from bench.serve.sides import CONNECTIONS, Side

SHARES = (0.5, 0.8, 0.95)
SEARCHED = 3
BOUND_MS = 50.0


def latency(sides: Sequence[Side]) -> None:
    """Alternated closed loops of all sides, of which the best number of connections gives the capacity; then
    the open loops of each."""
    seconds, rounds = sides[0].options.seconds, sides[0].options.rounds
    with ExitStack() as stack:
        clients: dict[Side, tuple[Server, Worker]] = {}
        for side in sides:
            try:
                server = stack.enter_context(side.serve())
            except ServerError as error:
                side.add(question="latency", skipped=str(error))
                print(f"{side.model.name}, {side.name}: skipped, {error}", flush=True)
                continue
            clients[side] = server, stack.enter_context(side.client(server))
        peaks: dict[Side, dict[int, list[float]]] = {side: {} for side in clients}
        for _ in range(rounds):
            for connections in CONNECTIONS:
                for side, (server, client) in clients.items():
                    row = side.load(server, client, "closed", connections=connections, duration=seconds / 4)
                    peaks[side].setdefault(connections, []).append(row["texts_per_second"])
        for side, (server, client) in clients.items():
            capacity = max(statistics.median(each) for each in peaks[side].values())
            side.add(question="capacity", texts_per_second=capacity, all=peaks[side])
            print(f"{side.model.name}, {side.name}: capacity {capacity:,.0f} texts/s", flush=True)
            below(side, server, client, capacity)
            found = side.check(client)
            side.add(question="answers", **found)
            print(f"  {found['compared']:,} different answers, {found['wrong']:,} wrong", flush=True)


def below(side: Side, server: Server, client: Worker, capacity: float) -> None:
    """Open loops at shares of the capacity, then between those that keep the bound and those that do not."""
    best, low, high = 0.0, 0.0, 1.1
    for share in (*SHARES, *[None] * SEARCHED):
        at = (low + high) / 2 if share is None else share
        row = side.load(server, client, "opened", rate=at * capacity, duration=side.options.seconds)
        side.add(question="latency", share=at, searched=share is None, **row)
        print(f"  {at:4.0%} {told(row)}", flush=True)
        if set(row["outcomes"][GOOD]) == {"200"} and row["p99_ms"] < BOUND_MS:
            low, best = max(low, at), max(best, row["texts_per_second"])
        else:
            high = min(high, at)
    side.add(question="within", bound_ms=BOUND_MS, texts_per_second=best)
    print(f"  p99 under {BOUND_MS:.0f} ms: up to {best:,.0f} texts/s", flush=True)


def told(row: Row) -> str:
    """A load in a line."""
    if not row["texts"]:
        return f"no answer: {row['outcomes']}"
    percentiles = f"p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms"
    return f"{row['texts_per_second']:6,.0f} texts/s, {percentiles}, {row['outcomes'][GOOD]}"
