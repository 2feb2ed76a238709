"""Processes that take turns: each has its own memory and threads, and only one works at a time.

A worker reads a command as a line of JSON, works, and answers with a line of JSON. So what is set up once
(compiled, warmed up) is measured many times, in turn with the others, round by round.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

Answer = dict[str, Any]


class WorkerError(Exception):
    """A worker could not do what it was asked to; the text is the last line of what it said about that."""


class Worker:
    """`python -m MODULE` in a process of its own, which answers as `serve` does."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the worker)
        self.answers, answering = os.pipe()  # not stdout, which libraries write to
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(answering)],
            stdin=subprocess.PIPE,
            stdout=self.said,
            stderr=self.said,
            pass_fds=[answering],
            env=os.environ | dict(environment or {}),
        )
        os.close(answering)
        self.buffer = b""

    def ask(self, command: str, *, seconds: float | None = None, **values: Any) -> Answer:
        """What the worker answers to a command.

        Args:
            seconds: how long it may take; no limit without it.

        Raises:
            WorkerError: the command failed, or the worker ended.
            TimeoutError: it took longer; the worker has been killed.
        """
        if self.said.closed:
            raise WorkerError("it was ended before")
        assert self.process.stdin is not None
        try:
            self.process.stdin.write((json.dumps({"command": command, **values}) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        answer = json.loads(self._line(None if seconds is None else time.monotonic() + seconds))
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _line(self, until: float | None) -> bytes:
        while b"\n" not in self.buffer:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self.answers], [], [], left)[0]:
                self.kill()
                raise TimeoutError
            read = os.read(self.answers, 1 << 16)
            if not read:
                raise WorkerError(self._last_words())
            self.buffer += read
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def _last_words(self) -> str:
        status = self.process.wait()
        self.said.seek(0)
        lines = [line for line in self.said.read().splitlines() if line.strip()]
        return f"ended with status {status}: {lines[-1] if lines else 'no message'}"

    def kill(self) -> None:
        """End the process at once; more than once does no harm."""
        if not self.said.closed:
            self.process.kill()
            self.process.communicate()
            os.close(self.answers)
            self.said.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def set_up(
    stack: ExitStack, module: str, variants: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Worker], dict[str, Answer]]:
    """Start a worker for each variant: those that are set up, and what each answered, or its "error"."""
    workers, answers = {}, {}
    for name, values in variants.items():
        print(f"  setting up {name} ...", file=sys.stderr, flush=True)
        worker = stack.enter_context(Worker(module))
        try:
            answers[name] = worker.ask("setup", **values)
            workers[name] = worker
        except WorkerError as error:
            answers[name] = {"error": str(error)}
    return workers, answers


def take_turns(workers: dict[str, Worker], rounds: int) -> tuple[dict[str, list[float]], dict[str, Answer]]:
    """The seconds of each worker's turns, and the "error" of each that failed, which leaves `workers`."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    errors = {}
    for turn in range(rounds):
        order = list(workers)
        start = turn % max(1, len(order))  # everyone has another one before it in every round
        for name in order[start:] + order[:start]:
            try:
                seconds[name].append(workers[name].ask("turn")["seconds"])
            except WorkerError as error:
                errors[name] = {"error": str(error)}
                del workers[name], seconds[name]
    return seconds, errors


def serve(commands: Mapping[str, Callable[..., Answer]]) -> None:
    """Answer the commands on stdin until it ends, as the process of a `Worker`."""
    answers = os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        values = json.loads(line)
        try:
            answer = commands[values.pop("command")](**values)
        except Exception as error:
            text = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {text[0] if text else ''}"}
        print(json.dumps(answer), file=answers, flush=True)
