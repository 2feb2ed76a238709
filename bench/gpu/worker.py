"""The process of bench/gpu that holds the device and answers its commands (bench/common/turns.py)."""

from typing import Any

import torch

from bench.common.peers import can_import
from bench.common.turns import Answer, serve
from bench.gpu import step
from bench.gpu.cases import Case

device = torch.device("cpu")


def start(name: str) -> Answer:
    """Take the device; facts about it."""
    global device
    device = torch.device(name)
    peers = {name: can_import(name) for name in ("transformers", "flash_attn")}
    facts: Answer = {"torch": torch.__version__, **peers}
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
    return {"flops_per_second": step.matrix_rate(device)}


def measure(case: dict[str, Any], rate: float) -> Answer:
    """The metrics of a case: one for the process, where determinism stays on and memory is not given back."""
    return step.measure(Case(**case), device, rate)


if __name__ == "__main__":
    serve({"start": start, "rate": rate, "measure": measure})
