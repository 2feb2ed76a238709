"""Builds the recording device and starts processes on it. Only the standard library is needed here.

The processes need another Python than this one: one whose torch is a CUDA build of the same version.
`make test-cuda` makes it in .venv-cuda; BRIMFUL_CUDA_PYTHON names another one.
"""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).with_name("recorder.c")


def python() -> Path:
    """The Python with a CUDA build of torch, whether or not it exists."""
    return Path(os.environ.get("BRIMFUL_CUDA_PYTHON") or ROOT / ".venv-cuda/bin/python")


def lacks() -> str | None:
    """What this machine lacks to run the device; None if it lacks nothing."""
    if not python().exists():
        return f"a Python with a CUDA build of torch: there is no {python()} (`make test-cuda` makes it)"
    if shutil.which("gcc") is None:
        return "gcc"
    return None


def build(folder: Path) -> Path:
    """Compile the device into a folder, for `environment`.

    Raises:
        RuntimeError: the CUDA headers are missing, or the compiler fails.
    """
    where = subprocess.run(
        [python(), "-c", "import triton; print(triton.__path__[0])"], capture_output=True, text=True
    )
    headers = Path(where.stdout.strip()) / "backends/nvidia/include"
    if where.returncode or not headers.is_dir():
        raise RuntimeError(f"{python()} has no Triton with CUDA headers: {where.stderr.strip()[-300:]}")
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-O1", "-fPIC", "-shared", f"-I{headers}", "-Wl,-soname,libcuda.so.1"]
    command = ["gcc", *flags, "-o", folder / "libcuda.so.1", SOURCE, "-ldl", "-lpthread"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"gcc cannot compile {SOURCE.name}: {made.stderr.strip()[-300:]}")
    return folder


def environment(
    folder: Path, *, gib: int = 80, devices: int = 1, capability: int = 90, kernel_ns: int = 0
) -> dict[str, str]:
    """The environment of a process on the device that `build` made in `folder`.

    Args:
        gib: memory of each device.
        capability: 75 (T4), 80 (A100), 86 (A10), 89 (L40S) or 90 (H100).
        kernel_ns: simulated time of a kernel.
    """
    return os.environ | {
        "LD_PRELOAD": str(folder / "libcuda.so.1"),
        "TRITON_LIBCUDA_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "RECORDER_GIB": str(gib),
        "RECORDER_DEVICES": str(devices),
        "RECORDER_CAPABILITY": str(capability),
        "RECORDER_NS": str(kernel_ns),
    }
