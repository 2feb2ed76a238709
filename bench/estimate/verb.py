"""A verb in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any


def verb(*arguments: str) -> tuple[dict[str, Any], int]:
    """The result of a verb, and the peak of its process's memory in bytes."""
    environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile("w+") as errors:
        line = [sys.executable, "-m", "brimful", *arguments, "--json"]
        process = subprocess.Popen(line, stdout=out, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"bench: brimful {' '.join(arguments)} failed:\n{errors.read()[-2000:]}")
        out.seek(0)
        return json.loads(out.read()), usage.ru_maxrss << 10
