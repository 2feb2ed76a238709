"""The process: its socket, its signals, and connections of clients that are slow, many, or leave."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from brimful.batching.queue import RefusedError
from brimful.batching.service import Service
from brimful.console import say, warn
from brimful.errors import BrimfulError
from brimful.serving.app import CLIENT, TOKEN, create_app, said
from brimful.serving.config import ServeConfig
from brimful.serving.metrics import Metrics
from brimful.serving.models import open_models
from brimful.system import allow_open_files

HEADERS = 64 << 10
"""The most bytes of a request before its body."""
PATIENCE = 10.0
"""Seconds in which a client must have sent its request."""
CONNECTIONS = 4096
"""The most connections; on more, requests get 429."""
KEPT = 75
"""Seconds that a connection stays open without a request: longer than a proxy keeps it."""
EVERY = 0.1
"""Seconds between two looks at deadlines and slow clients."""


class Connection(HttpToolsProtocol):
    """A client's connection.

    Attributes:
        crowded: whether it is one too many.
        left: whether it is over.
        since: when what is being sent began; None: it is there in full.
        before: bytes that were sent of it before the body.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.crowded, self.left, self.before = len(self.connections) > CONNECTIONS, False, 0
        self.since: float | None = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        self.left = True
        super().connection_lost(exc)

    def has_left(self) -> bool:
        """Whether it is over."""
        return self.left

    def data_received(self, data: bytes) -> None:
        self.before += len(data)
        super().data_received(data)
        if self.since is not None and self.before > HEADERS:
            self.hang_up(RefusedError(431, "the headers are too long"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since = time.monotonic()
        self.scope[CLIENT] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.before = -(1 << 62)  # the body is counted elsewhere

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.since, self.before = None, 0

    def hang_up(self, error: RefusedError) -> None:
        """Answer a request that is not there in full, and close."""
        if not self.transport.is_closing():
            body, _ = said(error)
            head = b"HTTP/1.1 %d Refused\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (error.status, len(body)) + body)
            self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn's, without its signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Process:
    """A server from its start to its end.

    Raises:
        BrimfulError: the address cannot be had.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.config, self.metrics = config, Metrics(lambda: self.service.queue)
        limits = config.queue_requests, config.queue_tokens, config.deadline
        self.service = Service(*limits, self.metrics.computed)
        self.error: Exception | None = None
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        try:
            self.listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
        except OSError as error:
            where = f"--host {config.host} --port {config.port}"
            raise BrimfulError(f"cannot listen on {where}: {error.strerror or error}") from error
        if not os.environ.get(TOKEN) and config.host not in ("127.0.0.1", "::1", "localhost"):
            warn(
                f"--host {config.host} is open to other machines, and {TOKEN} is not set: set it, or keep to"
                " 127.0.0.1 behind a proxy"
            )
        allow_open_files(CONNECTIONS + 64)
        settings = {"ws": "none", "lifespan": "off", "log_config": None, "log_level": "critical"}
        headers = {
            "access_log": False,
            "server_header": False,
            "date_header": False,
            "timeout_keep_alive": KEPT,
        }
        app = create_app(self.service, self.metrics)
        self.server = _Server(uvicorn.Config(app, http=Connection, **settings, **headers))  # type: ignore[arg-type]

    def run(self) -> dict[str, Any]:
        """Serve until a signal ends it.

        Returns:
            the number of `texts` that were answered.

        Raises:
            BrimfulError: a model cannot be opened.
        """
        with self.listener, asyncio.Runner(loop_factory=self.server.config.get_loop_factory()) as runner:
            runner.run(self._serve())
        if self.error is not None:
            raise self.error
        (texts,) = self.metrics.texts.collect()
        return {"texts": int(sum(each.value for each in texts.samples if each.name.endswith("_total")))}

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number, heed in ((signal.SIGTERM, self._drain), (signal.SIGINT, self._drain)):
            loop.add_signal_handler(number, heed)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self.loading, looking = loop.create_task(self._load()), loop.create_task(self._look())
        await self.server.serve(sockets=[self.listener])
        looking.cancel()

    async def _load(self) -> None:
        """Open the models. The first time, an error ends the server; later, it keeps those that it has."""
        service, again = self.service, bool(self.service.models)
        try:
            models = await asyncio.to_thread(open_models, self.config, service.engine.call)
        except (BrimfulError, OSError, MemoryError, RuntimeError) as error:
            if again:
                self.metrics.reloads.labels("failed").inc()
                say(f"serve: the models stay as they are: {error}")
            else:
                self.error, self.server.should_exit = error, True
            return
        service.use(models)
        names = ", ".join(models)
        if again:
            self.metrics.reloads.labels("done").inc()
            say(f"serve: loaded again: {names}")
            return
        host, port = self.listener.getsockname()[:2]
        print(f"serving {names} on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)

    def _reload(self) -> None:
        if self.loading.done() and not self.service.queue.closed:
            self.loading = asyncio.get_running_loop().create_task(self._load())

    def _drain(self) -> None:
        """Accept nothing more; a second signal does not wait for what was accepted."""
        self.server.force_exit = self.server.should_exit = self.service.queue.closed
        self.service.queue.closed = True

    async def _look(self) -> None:
        """Look at deadlines and slow clients, and for the end of a drain."""
        queue = self.service.queue
        while True:
            await asyncio.sleep(EVERY)
            queue.expire()
            late = time.monotonic() - PATIENCE
            for each in list(self.server.server_state.connections):
                if isinstance(each, Connection) and each.since is not None and each.since < late:
                    each.hang_up(RefusedError(408, "the request was not sent in time"))
            if queue.closed and not queue.requests:
                self.server.should_exit = True
