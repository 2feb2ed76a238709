"""What becomes of one attempt at a task, in the form in which it travels between processes."""

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brimful.errors import BrimfulError


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
    """The process that ran the task is gone; `how` ends the sentence "a worker process ..."."""

    how: str


Outcome = Done | Failed | Died


def pack(function: Callable[[Any], Any], task: Any) -> bytes:
    """A task for another process: `function` goes by name, so it must be importable there."""
    return pickle.dumps((function, task))


def attempt(packed: bytes) -> bytes:
    """Run a packed task; returns its packed Outcome, whatever the task raised."""
    try:
        function, task = pickle.loads(packed)
        return pickle.dumps(Done(function(task)))
    except BrimfulError as error:
        return pickle.dumps(Failed(error))
    except Exception as error:
        where = f"in a worker process:\n{''.join(traceback.format_exception(error)).rstrip()}"
        return _pack_failure(error, where)


def _pack_failure(error: Exception, where: str) -> bytes:
    """`where` goes along as a note: a traceback itself cannot."""
    error.add_note(where)
    try:
        packed = pickle.dumps(Failed(error))
        pickle.loads(packed)
        return packed
    except Exception:  # some cannot travel, such as those with arguments of their own
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(where)
        return pickle.dumps(Failed(plain))


def unpack(packed: bytes) -> Outcome:
    """The Outcome that `attempt` packed."""
    outcome: Outcome = pickle.loads(packed)
    return outcome
