"""Benchmarks as processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m ARGUMENTS` at the root of the repository."""
    options = {"capture_output": True, "text": True, "cwd": ROOT, "env": os.environ | environment}
    return subprocess.run([sys.executable, "-m", *arguments], timeout=600, **options)
