"""CPU seconds for 1,000 texts: of the server, by texts a request, and of `predict` on as many texts."""

import statistics
from contextlib import ExitStack

import numpy as np

from bench.serve.sides import Side

BATCHES = (1, 32)
IN_FLIGHT = 128


def cost(side: Side) -> None:
    """Rounds in which the server and `predict` take turns. The difference of two sizes leaves out what
    `predict` takes to start."""
    options = side.options
    texts = np.random.default_rng(options.seed).choice(side.texts, options.texts).tolist()
    few = texts[: len(texts) // 10]
    seconds: dict[str, list[float]] = {"predict": [], **{f"serve {batch}": [] for batch in BATCHES}}
    with ExitStack() as stack:
        server = stack.enter_context(side.serve())
        clients = {batch: stack.enter_context(side.client(server, batch)) for batch in BATCHES}
        for _ in range(options.rounds):
            small, large = (side.predict(some, side.folder / "out.jsonl") for some in (few, texts))
            seconds["predict"].append(1000 * (large - small) / (len(texts) - len(few)))
            for batch, client in clients.items():
                values = {"connections": IN_FLIGHT // batch, "most": len(texts) // batch}
                row = side.load(server, client, "closed", duration=600.0, **values)
                seconds[f"serve {batch}"].append(row["server_cpu_per_1000"])
    base = statistics.median(seconds["predict"])
    for name, each in seconds.items():
        median = statistics.median(each)
        side.add(question="cost", of=name, cpu_per_1000=median, all=each, times_predict=median / base)
        spread = f"({min(each):.3f}-{max(each):.3f})"
        print(f"  {name:9} {median:7.3f} CPU s for 1,000 texts {spread} {median / base:.2f}", flush=True)
