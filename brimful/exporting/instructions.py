"""Which instructions of this processor decide how fast, and in int8 how exact, an export is."""

import os
import platform
import re

from brimful.base.system import kernel_file
from brimful.model.int8_rounding import INSTRUCTIONS

_KNOWN = (
    "amx_int8",
    "amx_bf16",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "avx512f",
    "avx2",
    "i8mm",
    "asimddp",
)
SUMS_FOUR = (*INSTRUCTIONS, "i8mm", "asimddp")
"""`INSTRUCTIONS`, and those of ARM."""
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def instruction_sets() -> list[str]:
    """Those that matter here, of the processor as the system describes it."""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", kernel_file("proc/cpuinfo") or "", re.MULTILINE)
    flags = set(line[1].split()) if line else set()
    return [name for name in _KNOWN if name in flags]


def described_instructions() -> str:
    """The sets in a line, with what limits them."""
    limits = [f"{name}={os.environ[name]}" for name in _LIMITS if name in os.environ]
    found = instruction_sets() or [platform.machine()]
    return ", ".join([*found, *limits])
