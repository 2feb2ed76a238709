"""The outcome of one attempt at a task, and how tasks and outcomes travel between processes."""

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brimful.base.errors import BrimfulError


@dataclass(frozen=True)
class Done:
    """The task returned."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The task raised."""

    error: Exception


@dataclass(frozen=True)
class Died:
    """The process that ran the task ended; `how` completes the sentence "a worker process ..."."""

    how: str


@dataclass(frozen=True)
class Lost:
    """The machine that ran the task is gone, or cannot be reached."""


Outcome = Done | Failed | Died | Lost


def pack(function: Callable[[Any], Any], task: Any) -> bytes:
    """A task for another process. `function` is sent by name, so it must be importable there."""
    return pickle.dumps((function, task))


def attempt(packed: bytes) -> bytes:
    """Run a packed task and return its packed Outcome, even if the task raises."""
    try:
        function, task = pickle.loads(packed)
        return pickle.dumps(Done(function(task)))
    except BrimfulError as error:
        return pickle.dumps(Failed(error))
    except Exception as error:
        where = f"in a worker process:\n{''.join(traceback.format_exception(error)).rstrip()}"
        return _pack_failure(error, where)


def _pack_failure(error: Exception, where: str) -> bytes:
    """A traceback cannot be pickled, so `where` is added as a note."""
    error.add_note(where)
    try:
        packed = pickle.dumps(Failed(error))
        pickle.loads(packed)
        return packed
    except Exception:  # some cannot be pickled, such as those with required arguments
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(where)
        return pickle.dumps(Failed(plain))


def unpack(packed: bytes) -> Outcome:
    """The Outcome that `attempt` packed."""
    outcome: Outcome = pickle.loads(packed)
    return outcome
