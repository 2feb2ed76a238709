"""A script as processes that torchrun starts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRINTED = (
    "from brimful.base.console import print_messages\n"
    "as_a_command = print_messages()\nas_a_command.__enter__()\n"
)


def on_ranks(count: int, script: str, directory: Path, *arguments: object) -> str:
    """Run a script in the root of the repository until all its ranks have ended well; what is on stderr.

    It prints what a command prints. Its first argument is the directory in which it is written.
    """
    (directory / "rank.py").write_text(PRINTED + script)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count))
    line = [sys.executable, *launcher, directory / "rank.py", directory, *arguments]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]))
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(part) for part in line], cwd=ROOT, env=environment, **pipes) as launched:
        try:
            _, error = launched.communicate(timeout=300)
        except BaseException:
            launched.terminate()  # it ends its ranks, which a kill would leave running
            raise
    assert launched.returncode == 0, error
    return error
