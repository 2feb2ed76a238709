"""A toy track of the speedrun, and made-up runs."""

from typing import Any

from bench.speedrun.track import ENGLISH, quick

TRACK = quick(ENGLISH)


def run_of(side: str, seed: int, seconds: float, tokens: int, loss: float) -> dict[str, Any]:
    """What `Runs.run` returns for a training of 10 updates with two points."""
    point = {"seconds": seconds, "updates": 10, "tokens": tokens, "flops": tokens, "loss": loss}
    points = [{**point, "seconds": seconds / 2, "updates": 5, "loss": loss + 1}, point]
    code = {"commit": "0123456789", "code": "abc", "changed_files": []}
    code |= {"began": "2026-01-01T00:00:00+00:00", "processor": "a", "versions": {"torch": "2"}}
    code |= {"cores_of_others": 0.01, "update_seconds": seconds / 10}
    run = {"side": side, "seed": seed, "settings": {}, "asked_seconds": seconds, "points": points}
    return {**run, **point, **code}
