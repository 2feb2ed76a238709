"""Print the hash of the weights of a short run in float32.

    PYTHONPATH=CHECKOUT python tests/compare_bits.py

Two commits train the same bits if this prints the same on one machine for both; take this file from one
commit, and let PYTHONPATH say which package runs. It uses the command line alone.
"""

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from golden_texts import documents
from safetensors import safe_open

import brimful

PREPARE = "--tokenizer train:400 --validation-share 0.1 --workers 1 --read.split line"
PRETRAIN = (
    "--model tiny --precision fp32 --seed 3 --rows-per-update 16 --rows-per-micro-batch 4"
    " --packing.max-length 64 --packing.capacity 256 --trainer.steps 12 --trainer.log-every 1"
)


def run(verb: str, *arguments: str | Path, options: str) -> None:
    """Run a verb in a process of its own, on one thread, which decides bits too."""
    line = [sys.executable, "-P", "-m", "brimful", verb, *map(str, arguments), *shlex.split(options)]
    subprocess.run(line, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)


def hash_weights(folder: Path) -> str:
    """SHA-256 of the tensors of an encoder's folder, by name."""
    digest = hashlib.sha256()
    with safe_open(str(folder / "model.safetensors"), "np") as file:
        for name in sorted(file.keys()):
            value = file.get_tensor(name)
            digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts.txt").write_text("\n".join(documents(400, seed=12)) + "\n", encoding="utf-8")
        run("prepare", folder / "texts.txt", "--out", folder / "data", options=PREPARE)
        run("pretrain", "--data", folder / "data", "--out", folder / "run", options=PRETRAIN)
        print(f"{hash_weights(folder / 'run' / 'encoder')}  of {Path(brimful.__file__).parents[1]}")
