"""The number format of inference: bfloat16 where this machine is faster at it, measured once and kept.

The file is `brimful/bf16.json` in `$XDG_CACHE_HOME` or `~/.cache`. Anyone may delete it.
"""

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F

from brimful.errors import BrimfulError
from brimful.precision.formats import InferencePrecision
from brimful.precision.policy import has_fast_bf16, resolve
from brimful.storage import read_json, write_json

FEWEST = 4096
"""Tokens of a run below which laying out the weights in bfloat16 takes longer than it saves."""
LEAST = 1.1
"""How many times as fast as float32 products bfloat16 products must be."""
_ROWS, _WIDTH = 1024, 768
_TURNS = 5


def resolve_inference(precision: InferencePrecision, device: torch.device, tokens: int) -> InferencePrecision:
    """Replace `auto`: bf16 on GPUs and CPUs that are faster at it, else fp32.

    Args:
        tokens: of the run. On a CPU, a run of fewer than `FEWEST` is in fp32.

    Raises:
        BrimfulError: bf16 on a GPU that does not have it.
    """
    if precision == "int8":
        return precision
    if precision != "auto":
        return resolve(precision, device)
    return faster_format(device) if device.type != "cpu" or tokens >= FEWEST else "fp32"


def faster_format(device: torch.device) -> Literal["bf16", "fp32"]:
    """bf16 on GPUs that have it and on CPUs that are faster at it, else fp32."""
    faster = has_fast_bf16(device) and (device.type != "cpu" or _kept_speedup() >= LEAST)
    return "bf16" if faster else "fp32"


@cache
def _kept_speedup() -> float:
    """`speedup`, as this machine has measured it before, if it has."""
    able = sorted(name for name, has in torch.cpu.get_capabilities().items() if has)
    machine = {
        "torch": torch.__version__,
        "processor": [f"{name} {torch.cpu.get_capabilities()[name]}" for name in able],
        "instructions": os.environ.get("ONEDNN_MAX_CPU_ISA"),
        "threads": torch.get_num_threads(),
    }
    path = _file()
    if path is not None:
        with suppress(OSError, BrimfulError, KeyError, TypeError, ValueError):
            kept = read_json(path)
            if kept["machine"] == machine:
                return float(kept["speedup"])
    found = speedup()
    if path is not None:
        with suppress(OSError, BrimfulError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"machine": machine, "speedup": found})
    return found


def _file() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brimful" / "bf16.json"
    except RuntimeError:  # the user has no home
        return None


def lays_out_bf16() -> bool:
    """Whether oneDNN lays out weights in bfloat16 here: it refuses without AVX-512 or AVX-NE-CONVERT."""
    known = torch.ops.mkldnn
    has_all = all(hasattr(known, name) for name in ("_linear_pointwise", "_is_mkldnn_bf16_supported"))
    return torch.backends.mkldnn.is_available() and has_all and known._is_mkldnn_bf16_supported()


def speedup() -> float:
    """How many times as fast as in float32 matrix products are in bfloat16, as a run of inference has them.

    The shortest of alternated products of 1,024 rows by 768 x 768, some 50 ms in all. The caller's random
    numbers stay as they are.
    """
    own = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        x = torch.randn(_ROWS, _WIDTH, generator=own)
        weight = torch.randn(_WIDTH, _WIDTH, generator=own)
        narrow, laid_out = x.to(torch.bfloat16), weight.to(torch.bfloat16)
        if lays_out_bf16():
            laid_out = torch.ops.mkldnn._reorder_linear_weight(laid_out, _ROWS)
            products = (
                lambda: F.linear(x, weight),
                lambda: torch.ops.mkldnn._linear_pointwise(narrow, laid_out, None, "none", [], ""),
            )
        else:
            products = (lambda: F.linear(x, weight), lambda: F.linear(narrow, laid_out))
        seconds: tuple[list[float], list[float]] = ([], [])
        for turn in range(_TURNS + 1):
            for product, its in zip(products, seconds, strict=True):
                started = time.perf_counter()
                product()
                if turn:  # the first compiles
                    its.append(time.perf_counter() - started)
    wide, half = map(min, seconds)
    return wide / half
