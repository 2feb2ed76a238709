"""`brimful serve` of the model `quick` as a process, and sockets to it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
READY = "serving quick on http://127.0.0.1:"


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), (line, process.stderr and process.stderr.read())
        self.port = int(line.removeprefix(READY))

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, None if body is None else json.dumps(body), JSON)
        response = connection.getresponse()
        found = response.status, json.loads(response.read())
        connection.close()
        return found

    def connect(self, content: bytes) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        found.sendall(content)
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
        """What it says after a signal, of which it ends with status 0."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out, err


@contextmanager
def running(folder: Path, *options: str, code: str, **environment: str) -> Iterator[Running]:
    command = [sys.executable, "-c", code, "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def answered(connection: socket.socket) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def text_of(connection: socket.socket) -> str:
    """All that a connection says until the server closes it."""
    parts = []
    with connection:
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()
