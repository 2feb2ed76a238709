"""Data sheets of GPUs: what a device can compute, hold and send at most."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from brimful.errors import BrimfulError
from brimful.precision.policy import Precision

BF16_SINCE = 80
"""The capability from which on bfloat16 is computed as fast as float16."""

OTHERS = {"Laptop", "D", "Ti", "MIG"}
"""Words that tell a smaller device from a larger one of the same name."""

_NVLINK = {"V100": 150e9, "A100": 300e9, "H100": 450e9, "B200": 900e9}
_PCIE_3, _PCIE_4, _PCIE_5 = 16e9, 32e9, 64e9
_GBIT = 1e9 / 8


@dataclass(frozen=True)
class Sheet:
    """A GPU's data sheet.

    Attributes:
        words: all of them are in the device's name in CUDA.
        capability: 10 * major + minor.
        flops: a second, dense, of 16-bit products with float32 sums.
        flops_32: a second, in float32 without TF32; None: not known.
        bandwidth: of its memory, bytes a second.
        processors: streaming multiprocessors.
        gib: of memory.
        link: bytes a second that it sends to GPUs of its host, by NVLink, else by 16 lanes of PCIe.
        network: bytes a second that its host sends to others, by all network cards of the vendor's own system
            (DGX) together; without one, 25 Gbit/s.
        per_host: GPUs that share the links of a host.
    """

    name: str
    words: tuple[str, ...]
    capability: int
    flops: float
    flops_32: float | None
    bandwidth: float
    processors: int
    gib: int
    link: float
    network: float = 25 * _GBIT
    per_host: int = 8

    @property
    def source(self) -> str:
        """Where the numbers are from."""
        return f"NVIDIA's data sheet of {self.name}"

    def peak(self, precision: Precision) -> float | None:
        """Flops per second in a resolved precision; None: it lacks this format, or the rate is not known."""
        if precision == "bf16" and self.capability < BF16_SINCE:
            return None
        return self.flops_32 if precision == "fp32" else self.flops


SHEETS = (
    Sheet(
        *("GB200", ("GB200",), 100, 2500e12, None, 8e12, 148, 186, _NVLINK["B200"]),
        network=72 * 400 * _GBIT,
        per_host=72,
    ),
    Sheet("B200", ("B200",), 100, 2250e12, None, 8e12, 148, 180, _NVLINK["B200"], 3200 * _GBIT),
    Sheet("H200", ("H200",), 90, 989e12, 67e12, 4.8e12, 132, 141, _NVLINK["H100"], 3200 * _GBIT),
    Sheet("H100 PCIe", ("H100", "PCIe"), 90, 756e12, 51e12, 2e12, 114, 80, _PCIE_5),
    Sheet("H100 NVL", ("H100", "NVL"), 90, 835e12, 60e12, 3.9e12, 132, 94, _PCIE_5),
    Sheet("H100 SXM", ("H100",), 90, 989e12, 67e12, 3.35e12, 132, 80, _NVLINK["H100"], 3200 * _GBIT),
    Sheet("A100 SXM 80 GB", ("A100",), 80, 312e12, 19.5e12, 2.039e12, 108, 80, _NVLINK["A100"], 1600 * _GBIT),
    Sheet("A40", ("A40",), 86, 149.7e12, 37.4e12, 0.696e12, 84, 48, _PCIE_4),
    Sheet("A30", ("A30",), 80, 165e12, 10.3e12, 0.933e12, 56, 24, _PCIE_4),
    Sheet("A10", ("A10",), 86, 125e12, 31.2e12, 0.6e12, 72, 24, _PCIE_4),
    Sheet("L40S", ("L40S",), 89, 362e12, 91.6e12, 0.864e12, 142, 48, _PCIE_4),
    Sheet("L40", ("L40",), 89, 181e12, 90.5e12, 0.864e12, 142, 48, _PCIE_4),
    Sheet("L4", ("L4",), 89, 121e12, 30.3e12, 0.3e12, 58, 24, _PCIE_4),
    Sheet("RTX 4090", ("RTX", "4090"), 89, 165.2e12, 82.6e12, 1.008e12, 128, 24, _PCIE_4),
    Sheet("RTX 3090", ("RTX", "3090"), 86, 71e12, 35.6e12, 0.936e12, 82, 24, _PCIE_4),
    Sheet("V100S", ("V100S",), 70, 130e12, 16.4e12, 1.134e12, 80, 32, _PCIE_3),
    Sheet("V100 SXM2", ("V100", "SXM2"), 70, 125e12, 15.7e12, 0.9e12, 80, 32, _NVLINK["V100"], 400 * _GBIT),
    Sheet(
        "V100 SXM3", ("V100", "SXM3"), 70, 125e12, 15.7e12, 0.9e12, 80, 32, _NVLINK["V100"], 800 * _GBIT, 16
    ),
    Sheet("V100 PCIe", ("V100", "PCIE"), 70, 112e12, 14e12, 0.9e12, 80, 32, _PCIE_3),
    Sheet("T4", ("T4",), 75, 65e12, 8.1e12, 0.32e12, 40, 16, _PCIE_3),
)
"""The first whose words are all in a device's name counts."""


def sheet_of(name: str) -> Sheet | None:
    """The sheet of a device, by its name in CUDA, or None if unknown."""
    words = set(_words(name))
    if words & OTHERS:
        return None
    return next((sheet for sheet in SHEETS if words.issuperset(sheet.words)), None)


def find_sheet(name: str) -> Sheet:
    """The sheet that a person names, in any case: H100, h100-pcie, V100 (SXM2), A100-40GB, 4090.

    A number of GB in the name replaces that of the sheet.

    Raises:
        BrimfulError: there is no such sheet.
    """
    given = {word.upper() for word in _words(name)}
    sizes = [word for word in given if re.fullmatch(r"\d+GB", word)]
    given -= {*sizes, "NVIDIA", "TESLA", "GEFORCE", "SXM", "SXM4", "SXM5"}
    found = next((sheet for sheet in SHEETS if {word.upper() for word in sheet.words} == given), None)
    if found is None and given:
        found = next((s for s in SHEETS if given < {word.upper() for word in s.words}), None)
    if found is None:
        known = ", ".join(dict.fromkeys(_names()))
        raise BrimfulError(f"no data sheet of a GPU {name!r}: the known ones are {known}")
    return replace(found, gib=int(sizes[0][:-2])) if sizes else found


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s_-]+", name) if word]


def _names() -> Iterator[str]:
    for sheet in SHEETS:
        yield "-".join(sheet.words)
