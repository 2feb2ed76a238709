"""Runs tasks on a running Ray cluster. Ray is an optional extra and is imported only here.

Only task descriptions and small records travel through Ray. The tasks read and write files, so all nodes need
the same paths (a shared file system), and the same versions of Brimful and its libraries as the caller.
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from socket import create_connection
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.base.extras import require
from brimful.corpus.engines.outcomes import DiedError, LostError, Outcome, pack, unpack


def _remote_attempt() -> Callable[[str, list[str], bytes], bytes]:
    """`attempt` in the working directory and with the import paths of the caller.

    It is a local function, so that Ray sends its code: a node may find Brimful only through these paths.
    """

    def attempt_in(folder: str, places: list[str], packed: bytes) -> bytes:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task is given one core
        os.chdir(folder)
        sys.path.extend(place for place in places if place not in sys.path)
        from brimful.corpus.engines.outcomes import attempt

        return attempt(packed)

    return attempt_in


def _check_reachable(address: str) -> None:
    """Fail at once; Ray would try for minutes."""
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not port.isdecimal():
            raise ValueError("not HOST:PORT")
        create_connection((host, int(port)), timeout=10).close()


class RayCluster:
    """Runs up to `slots` tasks at once on a Ray cluster: at RAY_ADDRESS, or the one of this machine.

    While it is joined to a cluster, the stdout of this process goes to stderr.

    Args:
        slots: 0 means one for each CPU of the cluster.

    Raises:
        BrimfulError: Ray is not installed, or there is no such cluster.
    """

    def __init__(self, slots: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        require("engine=ray", "ray")
        import ray

        self._ray = ray
        self._left = ExitStack()
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS") or "auto"
            try:
                _check_reachable(address)
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, RuntimeError, ValueError) as error:
                reason = str(error).partition("\n")[0].partition(". ")[0]
                raise BrimfulError(
                    f"cannot join a Ray cluster, address {address} ({reason}); start one with "
                    "`ray start --head`, or say where it is: RAY_ADDRESS=HOST:PORT"
                ) from error
            # A thread of Ray prints messages about deaths at any time, and stdout is for results.
            self._left.enter_context(redirect_stdout(sys.stderr))
            self._left.callback(ray.shutdown)
        self.slots = slots or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._attempt = ray.remote(num_cpus=1, max_retries=0)(_remote_attempt())
        self._running: dict[Any, int] = {}

    def start(self, number: int, function: Callable[[Any], Any], task: Any) -> None:
        """Give a task to the cluster; it runs in the working directory of this process."""
        reference = self._attempt.remote(os.getcwd(), sys.path, pack(function, task))
        self._running[reference] = number

    def wait(self) -> list[tuple[int, Outcome]]:
        """Wait until at least one task ends; returns (number, outcome) of each that ended."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1)
        return [(self._running.pop(reference), self._outcome(reference)) for reference in ready]

    def _outcome(self, reference: Any) -> Outcome:
        exceptions = self._ray.exceptions
        try:
            return unpack(self._ray.get(reference))
        except exceptions.RayTaskError as error:  # before the task itself began
            return None, BrimfulError(
                f"a Ray worker cannot run tasks ({error.cause}): all nodes need Brimful installed, and the"
                " same files at the same paths"
            )
        except exceptions.OutOfMemoryError:
            return None, DiedError("was killed by Ray for lack of memory")
        except exceptions.NodeDiedError:
            return None, LostError()
        except exceptions.RayError as error:
            return None, DiedError(f"of Ray was lost ({type(error).__name__})")

    def stop(self) -> None:
        """End the running tasks."""
        running = list(self._running)
        self._running.clear()
        for reference in running:
            self._ray.cancel(reference, force=True)
        if running:
            self._ray.wait(running, num_returns=len(running), timeout=10, fetch_local=False)

    def close(self) -> None:
        """Leave the cluster, if this object joined it."""
        self.stop()
        self._left.close()
