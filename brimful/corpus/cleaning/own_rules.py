"""Rules that users write for their own corpus: patterns to remove, and runs of foreign script."""

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import EAST_ASIAN, HANGUL, LATIN, one_of

# A pattern that takes exponential time does so on repeated characters: 64 of them would take years.
_PROBES = ("a", "A", "0", " ", "_", "-", ".", "/", "中")
_PROBE_LENGTH = 64
_PROBE_SECONDS = 1.0

_HANGUL = one_of(HANGUL)
_GROUPS = (one_of(LATIN), _HANGUL, f"(?!{_HANGUL}){one_of(EAST_ASIAN)}")
_LETTER = r"[^\W\d_]"
_OWN_SHARE = 1 / 3
_BETWEEN = r"[\x00-\x09\x0b-@\[-`{-\x7f]"  # ASCII except letters and line feeds


def check_pattern(pattern: str) -> None:
    """Refuse a regular expression of the user's that no rule can apply.

    Raises:
        BrimfulError: the pattern cannot be compiled, matches the empty text, or takes exponential time.
    """
    name = f"clean.drop_patterns: {pattern!r}"
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise BrimfulError(f"{name} is not a regular expression: {error}") from error
    if compiled.fullmatch(""):
        raise BrimfulError(f"{name} matches the empty text; write + for *")
    try:
        with _limit_seconds(_PROBE_SECONDS):
            for character in (*_PROBES, *sorted(set(pattern))):
                compiled.search(character * _PROBE_LENGTH + "\0")
    except TimeoutError:
        raise BrimfulError(
            f"{name} takes more than {_PROBE_SECONDS:g} s for {_PROBE_LENGTH} characters;"
            " do not nest repeats as in (a+)+, or make the inner one possessive: (a++)+"
        ) from None


@contextmanager
def _limit_seconds(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after this much CPU time, in the main thread; other threads can't be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def pattern_rule(pattern: str) -> Callable[[str], tuple[str, int]]:
    """Make the rule that removes the matches of a pattern; `^` and `$` stand for the ends of lines."""
    compiled = re.compile(pattern, re.MULTILINE)
    return lambda text: compiled.subn("", text)


def foreign_run_rule(longest: int) -> Callable[[str], tuple[str, int]]:
    """Make the rule that replaces runs of at least `longest` characters in foreign scripts by a space.

    A script is a document's own if it has a third of the letters. Four scripts are distinguished: Latin,
    Hangul, Chinese with Japanese, and all others. A run begins with a foreign letter. It ends before the next
    letter of the document's own scripts, the next non-ASCII character other than a letter, or the next line
    break: `var x = 1;` in Chinese text is one run.
    """

    def drop(text: str) -> tuple[str, int]:
        letters = "".join(re.findall(_LETTER, text))
        least = _OWN_SHARE * len(letters)
        # A foreign letter is in none of the own scripts; if "all others" are own, in one of the three groups.
        conditions = ""
        others = len(letters)
        for group in _GROUPS:
            count = len(re.findall(group, letters))
            others -= count
            if count >= least:
                conditions += f"(?!{group})"
        if others >= least:
            conditions += f"(?={'|'.join(_GROUPS)})"
        run = re.compile(f"(?:{conditions}{_LETTER}{_BETWEEN}*+)++")
        times = 0

        def judge(match: re.Match[str]) -> str:
            nonlocal times
            if len(match[0].rstrip()) < longest:
                return match[0]
            times += 1
            return " "

        return run.sub(judge, text), times

    return drop
