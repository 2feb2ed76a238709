"""The process of bench/gpu that holds the device and answers its commands (bench/common/turns.py)."""

from pathlib import Path
from typing import Any

import torch

from bench.common.peers import have_transformers
from bench.common.turns import Answer, serve
from bench.gpu.cases import Case
from bench.gpu.step import Measurement, matrix_rate
from brimful.base.errors import is_out_of_memory

device = torch.device("cpu")
measured: list[Measurement] = []


def start(name: str, threads: int | None) -> Answer:
    """Take the device; facts about it."""
    global device
    device = torch.device(name)
    facts: Answer = {"torch": torch.__version__, "transformers": have_transformers()}
    if threads:
        torch.set_num_threads(threads)
    if device.type != "cuda":
        return facts | {"device": "cpu"}
    if not torch.cuda.is_available():
        return facts | {"device": None}
    properties = torch.cuda.get_device_properties(0)
    return facts | {
        "device": properties.name,
        "memory_gib": properties.total_memory / 2**30,
        "capability": torch.cuda.get_device_capability(0),
        "cuda": torch.version.cuda,
    }


def rate() -> Answer:
    """The measured matrix rate."""
    return {"flops_per_second": matrix_rate(device)}


def set_up(case: dict[str, Any], histogram: str | None, halve: bool) -> Answer:
    """Make the step of the case ready to be timed."""
    path = Path(histogram) if histogram else None
    try:
        measured.append(Measurement(Case(**case), device, path, halve=halve))
    except RuntimeError as error:
        return _no_memory(error)
    return {}


def time(rate: float) -> Answer:
    """The metrics of the case that was set up."""
    try:
        return measured[0].time(rate)
    except RuntimeError as error:
        return _no_memory(error)


def _no_memory(error: RuntimeError) -> Answer:
    if is_out_of_memory(error):
        return {"out_of_memory": True}
    raise error


if __name__ == "__main__":
    serve({"start": start, "rate": rate, "set_up": set_up, "time": time})
