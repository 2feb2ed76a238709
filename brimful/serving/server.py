"""The process: its socket, its signals, and the connections of clients that are slow, many, or leave."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from brimful.console import say, warn
from brimful.errors import BrimfulError
from brimful.serving.app import CLIENT, Service, create_app
from brimful.serving.config import TOKEN, ServeConfig
from brimful.serving.models import open_models
from brimful.system import allow_open_files

HEADERS = 64 << 10
"""The most bytes of a request before its body."""
KEPT = 75
"""Seconds that a connection without a request stays open: longer than those of the usual proxies."""
EVERY = 0.1
"""Seconds between two looks at deadlines and slow clients."""


class Connection(HttpToolsProtocol):
    """A client's connection.

    Attributes:
        crowded: whether it is one too many.
        left: whether it is over.
        since: when the request that is being sent began, or the connection; None: it is there in full.
    """

    most = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.crowded, self.left = len(self.connections) > self.most, False
        self.since: float | None = time.monotonic()
        self.before = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.left = True
        super().connection_lost(exc)

    def has_left(self) -> bool:
        """Whether it is over."""
        return self.left

    def data_received(self, data: bytes) -> None:
        self.before += len(data)
        super().data_received(data)
        if self.before > HEADERS and not self.transport.is_closing():
            self.close(b"431 Request Header Fields Too Large", "invalid_request", "the headers are too long")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since = time.monotonic()
        self.scope[CLIENT] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.before = -(1 << 62)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.since, self.before = None, 0

    def close(self, status: bytes, kind: str, message: str) -> None:
        """Answer a request that is not complete, and hang up."""
        body = b'{"error": {"message": "%s", "type": "%s", "code": %s}}' % (
            *(message.encode(), kind.encode()),
            status[:3],
        )
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % (
            *(status, len(body)),
        )
        self.transport.write(head + b"connection: close\r\n\r\n" + body)
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's, without its signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to `Process`."""
        yield


def run(config: ServeConfig) -> dict[str, Any]:
    """Serve until a signal ends it.

    Returns:
        the number of `texts` that were answered.

    Raises:
        BrimfulError: the address cannot be had, or a model cannot be opened.
    """
    allow_open_files(config.connections + 64)
    try:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        where = f"--host {config.host} --port {config.port}"
        raise BrimfulError(f"cannot listen on {where}: {error.strerror or error}") from error
    if not os.environ.get(TOKEN) and not _is_loopback(config.host):
        warn(
            f"{config.host} is open to other machines, and {TOKEN} is not set: whoever reaches the port is"
            f" answered; set {TOKEN}, or keep to 127.0.0.1 behind a proxy"
        )
    with listener:
        return _Process(config, listener).run()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Process:
    def __init__(self, config: ServeConfig, listener: socket.socket) -> None:
        self.config, self.listener = config, listener
        self.service = Service(config)
        Connection.most = config.connections
        self.server = Server(
            uvicorn.Config(
                create_app(self.service),
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEPT,
            )
        )
        self.loading: asyncio.Task[None] | None = None
        self.error: BrimfulError | None = None

    def run(self) -> dict[str, Any]:
        with asyncio.Runner(loop_factory=self.server.config.get_loop_factory()) as runner:
            runner.run(self._serve())
        if self.error is not None:
            raise self.error
        samples = (each for family in self.service.metrics.texts.collect() for each in family.samples)
        return {"texts": int(sum(each.value for each in samples if each.name.endswith("_total")))}

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self.loading = loop.create_task(self._load())
        looking = loop.create_task(self._look())
        await self.server.serve(sockets=[self.listener])
        looking.cancel()

    async def _load(self) -> None:
        """Open the models; the first time, an error ends the server, later it keeps those that it has."""
        service, first = self.service, not self.service.models
        try:
            models = await asyncio.to_thread(open_models, self.config, service.engine.call)
        except (BrimfulError, OSError, MemoryError) as error:
            if first:
                self.error = error if isinstance(error, BrimfulError) else BrimfulError(str(error))
                self.server.should_exit = True
            else:
                service.metrics.reloads.labels("failed").inc()
                say(f"serve: the models stay as they are: {error}")
            return
        service.use(models)
        names = ", ".join(models)
        if not first:
            service.metrics.reloads.labels("done").inc()
            say(f"serve: reloaded {names}")
            return
        host, port = self.listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"serving {names} on http://{shown}:{port}", flush=True)

    def _reload(self) -> None:
        if self.loading is not None and self.loading.done() and not self.service.queue.closed:
            self.loading = asyncio.get_running_loop().create_task(self._load())

    def _drain(self) -> None:
        """Accept nothing more; a second signal does not wait for what was accepted."""
        if self.service.queue.closed:
            self.server.force_exit = True
        self.service.queue.closed = True

    async def _look(self) -> None:
        """Now and then: deadlines, slow clients, the end of a drain."""
        queue = self.service.queue
        while True:
            await asyncio.sleep(EVERY)
            queue.expire()
            late = time.monotonic() - self.config.patience
            for each in list(self.server.server_state.connections):
                assert isinstance(each, Connection)
                if each.since is not None and each.since < late and not each.transport.is_closing():
                    each.close(b"408 Request Timeout", "timeout", "the request was not sent in time")
            if queue.closed and not queue.requests:
                self.server.should_exit = True
