"""Print the hashes of the weights of two short runs in float32: one goes through, one is killed and resumed.

    PYTHONPATH=CHECKOUT python tests/compare_bits.py

Two commits train the same bits if this prints the same on one machine for both; take this file from one
commit, and let PYTHONPATH say which package runs. It uses the command line alone. The two hashes of a commit
are equal, too: what was killed goes on to the same bits.
"""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from golden_texts import documents
from safetensors import safe_open

import brimful

PREPARE = shlex.split("--tokenizer train:400 --validation-share 0.1 --workers 1 --read.split line")
PRETRAIN = shlex.split(
    "--model tiny --precision fp32 --seed 3 --rows-per-update 16 --rows-per-micro-batch 4"
    " --packing.max-length 64 --packing.capacity 256"
    " --trainer.steps 12 --trainer.checkpoint-every 6 --trainer.log-every 1"
)


def start(verb: str, *arguments: str | Path) -> subprocess.Popen:
    """Run a verb in a process of its own, on one thread, which decides bits too."""
    environment, quiet = {**os.environ, "OMP_NUM_THREADS": "1"}, subprocess.DEVNULL
    line = [sys.executable, "-P", "-m", "brimful", verb, *map(str, arguments)]
    return subprocess.Popen(line, env=environment, stdout=quiet, stderr=quiet)


def run(verb: str, *arguments: str | Path) -> None:
    """Run a verb to its end, which must be a good one."""
    with start(verb, *arguments) as process:
        code = process.wait()
    if code:
        sys.exit(f"brimful {verb} failed with exit code {code}")


def run_killed(checkpoint: Path, verb: str, *arguments: str | Path) -> None:
    """Run a verb and kill it as soon as it has written a checkpoint."""
    with start(verb, *arguments) as process:
        while not checkpoint.exists():
            if process.poll() is not None:
                sys.exit(f"brimful {verb} ended before its checkpoint {checkpoint.name}")
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    if process.returncode != -signal.SIGKILL:
        sys.exit(f"brimful {verb} ended before it could be killed")


def hash_weights(folder: Path) -> str:
    """SHA-256 of the tensors of an encoder's folder, by name."""
    digest = hashlib.sha256()
    with safe_open(str(folder / "model.safetensors"), "np") as file:
        for name in sorted(file.keys()):
            value = file.get_tensor(name)
            digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


def main() -> None:
    """Prepare, train twice, print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = "\n".join(documents(400, seed=12)) + "\n"
        (folder / "texts.txt").write_text(text, encoding="utf-8")
        data, through, killed = (folder / name for name in ("data", "through", "killed"))
        run("prepare", folder / "texts.txt", "--out", data, *PREPARE)
        run("pretrain", "--data", data, "--out", through, *PRETRAIN)
        checkpoint = killed / "checkpoints" / "step-6"
        run_killed(checkpoint, "pretrain", "--data", data, "--out", killed, *PRETRAIN)
        run("pretrain", "--resume", killed)
        print(f"brimful of {Path(brimful.__file__).parents[1]}", file=sys.stderr)
        print(f"{hash_weights(through / 'encoder')}  through")
        print(f"{hash_weights(killed / 'encoder')}  killed and resumed")


if __name__ == "__main__":
    main()
