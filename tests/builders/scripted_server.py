"""A server that answers as a test writes it, with the page of `brimful serve` at `/`."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from brimful.serving.app import read_page


class Answer(NamedTuple):
    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}


@dataclass
class Scripted:
    """Where the server is, what it was asked (path, headers, body), and how it answers."""

    url: str
    answer: Callable[[str, Mapping[str, str], Any], Answer]
    asked: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list)


@contextmanager
def scripted_server(answer: Callable[[str, Mapping[str, str], Any], Answer]) -> Iterator[Scripted]:
    """`answer(path, headers, body)` says what each request but that for the page gets; body None is a GET."""
    scripted = Scripted("", answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                body, headers = read_page()
                self.reply(200, {name.decode(): value.decode() for name, value in headers}, body)
            else:
                self.say(None)

        def do_POST(self) -> None:
            self.say(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def say(self, asked: Any) -> None:
            headers = dict(self.headers.items())
            scripted.asked.append((self.path, headers, asked))
            said = scripted.answer(self.path, headers, asked)
            kind = {"Content-Type": "application/json"}
            self.reply(said.status, {**kind, **said.headers}, json.dumps(said.body).encode())

        def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scripted.url = f"http://127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield scripted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
