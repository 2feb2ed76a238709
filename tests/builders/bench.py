"""Benchmarks as processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, **environment: str) -> str:
    """What `python -m ARGUMENTS` prints at the root of the repository; it must end with status 0."""
    command = [sys.executable, "-m", *arguments]
    options = {"capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)
