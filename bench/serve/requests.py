"""Requests as bytes: good ones, and broken ones with the statuses that they deserve."""

import json
from collections.abc import Sequence

import numpy as np

GOOD = "good"
MEGABYTE = 1_000_000
DRAWS = 512
"""How many requests of several texts there are; each holds other texts."""

GONE = "left"
"""The outcome of a request whose client left."""
BROKEN = {
    "not JSON": (0.2, {"400"}),
    "not UTF-8": (0.2, {"400"}),
    "wrong type": (0.2, {"422"}),
    "half a body": (0.1, {GONE}),
    "vanishing": (0.24, {GONE}),
    "10,000 texts": (0.04, {"413", "422"}),
    "a text of 5 MB": (0.01, {"413", "422"}),
    "10 MB": (0.01, {"413"}),
}
"""Broken requests: their shares, which are smaller where the client would spend its time on sending, and the
outcomes that they deserve besides 429, and 503 of a server that ends."""
LEAVES = {"half a body": 1.0, "vanishing": 0.005}
"""Seconds after which a client leaves."""


def good(texts: Sequence[str], batch: int, seed: int) -> list[tuple[list[int], bytes]]:
    """Requests of `batch` texts each: the numbers of their texts, and their bytes."""
    if batch == 1:
        return [([number], _post({"text": text})) for number, text in enumerate(texts)]
    chosen = np.random.default_rng(seed).integers(len(texts), size=(DRAWS, batch)).tolist()
    return [(numbers, _post({"texts": [texts[number] for number in numbers]})) for numbers in chosen]


def broken(text: str) -> dict[str, bytes]:
    """A request of each broken kind, made from a text."""
    whole = _post({"text": text})
    return {
        "not JSON": _post(b'{"text": '),
        "not UTF-8": _post(b'{"text": "\xff\xfe"}'),
        "wrong type": _post({"text": 1}),
        "half a body": whole[:-10],
        "vanishing": whole,
        "10,000 texts": _post({"texts": ["a"] * 10_000}),
        "a text of 5 MB": _post({"text": "word " * MEGABYTE}),
        "10 MB": _post({"text": "a" * (10 * MEGABYTE)}),
    }


def _post(body: object) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + content
