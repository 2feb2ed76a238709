"""The server process (socket, signals, models, end), and the limits of a client's connection."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from brimful.base.console import escape_controls, say, warn
from brimful.base.errors import BrimfulError
from brimful.base.resources import allow_open_files
from brimful.base.types import Values
from brimful.serving.access import MAX_HEADER_BYTES, TOKEN_VARIABLE, Access, read_token
from brimful.serving.app import CLIENT, App, Metrics, error_response
from brimful.serving.batch_model import open_models
from brimful.serving.config import ServeConfig
from brimful.serving.queue import RefusedError
from brimful.serving.service import Service

SWITCH_SECONDS = 1e-4
"""Seconds after which a thread gives Python's lock to another one. With Python's 5 ms, refusals would hold up
each operation of the engine."""
BACKLOG_CONNECTIONS = 2048
"""The most clients that wait for a connection, and that get one in a turn of the loop."""
MAX_EVENT_BYTES = 1 << 20
"""The most bytes of headers that h11 reads before it answers 400. `Connection` answers 431 from
`MAX_HEADER_BYTES` on, which is less by more than one read."""
WATCH_SECONDS = 0.1
"""Seconds between two checks of deadlines and slow clients."""
MAX_CONNECTIONS = 4096
"""The most open connections. A further one closes the connection whose client has been silent for longest."""
MAX_REQUEST_BYTES = 64 << 20
"""The most bytes of a request. A body that is refused is read to its end, since many clients read an answer
only after they have sent everything."""
REQUEST_SECONDS = 10
"""Seconds in which a client must send the headers, and then again for the body."""
BYTES_PER_SECOND = 256 << 10
"""Bytes of a request for each of which a client gets one more second."""
IDLE_SECONDS = 75
"""Seconds that a connection stays open between two requests, longer than proxies keep it."""
UNREAD_SECONDS = 75
"""Seconds after which an answer is dropped if the client reads none of it."""


class ServerProcess:
    """A server from its start to its end. It refuses an address on which it cannot listen.

    Attributes:
        clients: all connections, in the order in which their clients sent last.
        error: the error with which the process ends, if any.
        stale: an event that is set while the models must be loaded, at the start and after SIGHUP.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.config, self.metrics = config, Metrics()
        self.service = Service(config.queue_requests, config.deadline, self.metrics.count_batch)
        self.clients: dict[Connection, None] = {}
        self.error: BaseException | None = None
        self.stale = asyncio.Event()
        token = read_token()
        self.listener = open_listener(config)
        local = ip_address(self.listener.getsockname()[0]).is_loopback
        if not token and not local:
            warn(
                f"--host {config.host} is open to other machines, and {TOKEN_VARIABLE} is not set: set it, or"
                " keep to 127.0.0.1 behind a proxy"
            )
        allow_open_files(MAX_CONNECTIONS + 64)
        sys.setswitchinterval(SWITCH_SECONDS)
        connection: Any = partial(Connection, self.metrics, self.clients)
        options = uvicorn.Config(
            App(self.service, self.metrics, Access(token, local)),
            http=connection,
            ws="none",
            lifespan="off",
            # Nothing is logged, since a path or a header may hold a secret.
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=REQUEST_SECONDS,  # for clients that read nothing
            h11_max_incomplete_event_size=MAX_EVENT_BYTES,
        )
        self.server = uvicorn.Server(options)
        self.server.capture_signals = nullcontext  # type: ignore[assignment]  # `_serve` handles them

    def run(self, begin: Callable[[], None]) -> Values:
        """Serve until a signal ends it, and return the number of `texts` that were answered.

        `begin` is called just before the server handles signals itself.
        """
        with self.listener:
            asyncio.run(self._serve(begin))
        if self.error is not None:
            raise self.error
        (metric,) = self.metrics.texts.collect()  # a sample by model, and the times when they began
        texts = sum(sample.value for sample in metric.samples if sample.name.endswith("_total"))
        return {"texts": int(texts)}

    async def _serve(self, begin: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        begin()
        loop.add_signal_handler(signal.SIGTERM, self._drain)
        loop.add_signal_handler(signal.SIGINT, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self.stale.set)
        tasks = [loop.create_task(self._load()), loop.create_task(self._watch())]
        await self.server.serve(sockets=[self.listener])
        for task in tasks:
            task.cancel()

    async def _load(self) -> None:
        """Open the models, and open them again after signals.

        A signal during the opening, whose folders may have changed since, starts another opening. An error of
        the first opening ends the server; after a later error the server keeps its models.
        """
        service = self.service
        self.stale.set()
        while await self.stale.wait():
            self.stale.clear()
            if service.queue.closed:
                continue
            is_first = not service.models
            try:
                models = await asyncio.to_thread(open_models, self.config.model_options, service.engine.call)
                service.use(models)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # a panic of tokenizers is not an Exception
                if is_first:
                    self.error, self.server.should_exit = error, True
                    return
                reason = str(error) if isinstance(error, BrimfulError) else f"{type(error).__name__}: {error}"
                say(f"serve: the models stay as they are: {reason}")
                continue
            names = escape_controls(", ".join(models))
            if not is_first:
                say(f"serve: loaded again: {names}")
                continue
            host, port = self.listener.getsockname()[:2]
            if ":" in host:  # IPv6
                host = f"[{host}]"
            print(f"serving {names} on http://{host}:{port}", flush=True)

    def _drain(self) -> None:
        """Accept no more requests. After a second signal the server ends before all answers are sent."""
        self.server.force_exit = self.server.should_exit = self.service.queue.closed
        self.service.queue.closed = True

    async def _watch(self) -> None:
        """Check deadlines and slow clients, and whether a drain has ended."""
        queue, is_drained = self.service.queue, False
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            queue.expire()
            for connection in list(self.clients):
                connection.check()
            if self.service.engine.lost:
                self.error = BrimfulError(self.service.engine.lost)
            # One round later, so that a request that was on its way gets its 503.
            self.server.should_exit |= is_drained
            is_drained = queue.closed and not queue.requests


def open_listener(config: ServeConfig) -> socket.socket:
    """Return the socket that listens on the address of the configuration."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    is_dual = config.host == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server(
            (config.host, config.port), family=family, backlog=BACKLOG_CONNECTIONS, dualstack_ipv6=is_dual
        )
    except OSError as error:
        reason = str(error)
        if error.errno and error.errno > 0:  # the lookup of a name has negative numbers
            reason = os.strerror(error.errno)
        raise BrimfulError(
            f"cannot listen on --host {config.host} --port {config.port}: {reason}; choose another --host or"
            " --port"
        ) from error
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    return listener


class Connection(H11Protocol):
    """A connection over HTTP/1.1 in uvicorn, with limits.

    Attributes:
        clients: all connections, in the order in which their clients sent last.
        progress: the state of the client at the last check.
        since: the time at which the client reached this state, in seconds of the loop's clock.
        size: bytes that the client has sent since then.
        has_ended: whether the client has closed its half of the connection.
    """

    def __init__(self, metrics: Metrics, clients: dict["Connection", None], **options: Any) -> None:
        super().__init__(**options)
        self.metrics, self.clients, self.has_ended = metrics, clients, False
        self.progress, self.since, self.size = tuple[Any, ...](), self.loop.time(), 0

    @property
    def awaits_client(self) -> bool:
        """Whether the client must send next, since no request waits for an answer."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app_state, self.clients[self] = {CLIENT: transport}, None
        if len(self.clients) > MAX_CONNECTIONS:
            oldest = next(connection for connection in self.clients if connection.awaits_client)
            del self.clients[oldest]
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.clients[self] = self.clients.pop(self)  # moves it to the end
        self.size += len(data)
        super().data_received(data)
        if self.awaits_client and len(self.conn.trailing_data[0]) > MAX_HEADER_BYTES:
            self.hang_up(431, "the headers are too long")
        elif self.size > MAX_REQUEST_BYTES:
            self.hang_up(413, "the request is too long")

    def send_400_response(self, msg: str) -> None:
        self.hang_up(400, "the request is not HTTP/1.1")

    def eof_received(self) -> bool:  # type: ignore[override]
        self.has_ended = True  # `check` closes the connection once its requests are answered
        return not self.awaits_client

    def connection_lost(self, exc: Exception | None) -> None:
        self.clients.pop(self, None)
        # Given an error, uvicorn would leave its timer running, which keeps the connection in memory.
        super().connection_lost(None)

    def check(self) -> None:
        """Close the connection if its client sends no request in time, or does not read an answer."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        is_idle = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        progress = self.cycle, is_idle, unread
        if progress != self.progress or not (self.awaits_client or unread):
            self.progress, self.since, self.size = progress, now, 0
        seconds = now - self.since
        if unread:
            if seconds > UNREAD_SECONDS:
                self.transport.abort()
        elif is_idle and self.cycle is not None:  # between two requests
            if seconds > IDLE_SECONDS or self.has_ended:
                self.transport.abort()
        elif seconds > REQUEST_SECONDS + self.size / BYTES_PER_SECOND:
            self.hang_up(408, "the request was not sent in time")
        elif self.has_ended and self.awaits_client:
            self.transport.abort()

    def hang_up(self, status: int, reason: str) -> None:
        """Close the connection, and give the reason if no answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            if self.conn.our_state is h11.IDLE:  # else the application counts the request
                self.metrics.requests.labels("early", str(status)).inc()
            status, content, headers = error_response(RefusedError(status, reason))
            headers += [(b"content-length", b"%d" % len(content)), (b"connection", b"close")]
            response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()
