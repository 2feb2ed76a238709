"""Restarts by torchrun: when a rank has ended, torchrun starts all of them again with the same command line.

The command names a new run, whose directory now holds what the first attempt left. torchrun's store outlives
the ranks, so the first attempt notes there that the directory was free. What is in it is then the run's own.
"""

import os
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from brimful.base.config import build
from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.environment import number_of
from brimful.base.storage import is_empty
from brimful.runs.directory import CONFIG, RunConfig

C = TypeVar("C", bound=RunConfig)


def restarted(config: C, ranks: World) -> C:
    """The configuration with which this process goes on: `resume` alone, if torchrun has restarted a new run.

    A run that was ended before it had a configuration is removed and starts over. All ranks call it.
    """
    values: Any = config
    if config.resume is not None or config.out is None or values.dry_run:
        return config
    out = Path(config.out)
    store = _store() if ranks.is_main else None
    again = 0.0
    (restarts,) = ranks.sum([float(number_of("TORCHELASTIC_RESTART_COUNT", 0))])  # 0 on a new machine
    if store is not None and restarts and _claimed(store, out):
        again = 1.0 if (out / CONFIG).is_file() else 0.0
        if not again:
            shutil.rmtree(out, ignore_errors=True)
        say(f"torchrun has restarted the run: {'it goes on' if again else 'it starts over'}")
    elif store is not None and (not out.exists() or (out.is_dir() and is_empty(out))):
        with suppress(RuntimeError):
            store.set(_key(out), "claimed")
    (again,) = ranks.sum([again])
    return build(type(config), {"resume": config.out}) if again else config


def _store() -> dist.Store | None:
    """torchrun's store; None without torchrun, or if the ranks keep a store of their own."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with suppress(RuntimeError):
        timeout = timedelta(seconds=10)
        return dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)
    return None


def _claimed(store: dist.Store, out: Path) -> bool:
    with suppress(RuntimeError):
        return store.check([_key(out)])
    return False


def _key(out: Path) -> str:
    return f"brimful/run/{out.absolute()}"
