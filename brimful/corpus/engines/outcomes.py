"""One attempt at a task in another process, and what can become of it."""

import pickle
import traceback
from collections.abc import Callable
from typing import Any

from brimful.base.errors import BrimfulError


class DiedError(Exception):
    """The process that ran a task ended; the text completes the sentence "a worker process ..."."""


class LostError(Exception):
    """The machine that ran a task is gone, or cannot be reached."""


Outcome = tuple[Any, Exception | None]
"""What a task returned, or what it raised; or `DiedError` or `LostError`."""


def pack(function: Callable[[Any], Any], task: Any) -> bytes:
    """A task for another process. `function` is sent by name, so it must be importable there."""
    return pickle.dumps((function, task))


def attempt(packed: bytes) -> bytes:
    """Run a packed task and return its packed Outcome, even if the task raises."""
    try:
        function, task = pickle.loads(packed)
        return pickle.dumps((function(task), None))
    except BrimfulError as error:
        return pickle.dumps((None, error))
    except Exception as error:
        where = f"in a worker process:\n{''.join(traceback.format_exception(error)).rstrip()}"
        error.add_note(where)  # a traceback cannot be pickled
        try:
            failed = pickle.dumps((None, error))
            pickle.loads(failed)
        except Exception:  # some exceptions cannot be pickled, such as those with required arguments
            plain = RuntimeError(f"{type(error).__name__}: {error}")
            plain.add_note(where)
            failed = pickle.dumps((None, plain))
        return failed


def unpack(packed: bytes) -> Outcome:
    """The Outcome that `attempt` packed."""
    outcome: Outcome = pickle.loads(packed)
    return outcome
