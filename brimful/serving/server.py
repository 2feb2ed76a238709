"""The process: its socket, its signals, its models, and its end; and what a client's connection may do."""

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
from brimful.base.machine import allow_open_files
from brimful.serving.access import HEADERS, TOKEN, Access, token_of_environment
from brimful.serving.app import CLIENT, App, Metrics, in_full
from brimful.serving.batch_model import open_models
from brimful.serving.config import ServeConfig
from brimful.serving.queue import RefusedError
from brimful.serving.service import Service

SLICE = 1e-4
"""Seconds that a thread keeps Python's lock: 5 ms of refusals would hold up each operation of the engine."""
BACKLOG = 2048
"""Clients that wait for a connection, and the most that get one in a turn of the loop."""
INCOMPLETE = 1 << 20
"""Bytes of a part of a request at which h11 says 400: a read more than `HEADERS`, at which `Connection` says
431."""
EVERY = 0.1
"""Seconds between two looks at deadlines and slow clients."""


class Process:
    """A server from its start to its end.

    Raises:
        BrimfulError: the address cannot be had.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.config, self.metrics = config, Metrics()
        self.service = Service(config.queue_requests, config.deadline, self.metrics.computed)
        self.error: BaseException | None = None
        self.stale = asyncio.Event()
        token = token_of_environment()
        kind: dict[str, Any] = {"family": socket.AF_INET6 if ":" in config.host else socket.AF_INET}
        kind["dualstack_ipv6"] = config.host == "::" and socket.has_dualstack_ipv6()
        try:
            self.listener = socket.create_server((config.host, config.port), **kind, backlog=BACKLOG)
        except OSError as error:
            where = f"--host {config.host} --port {config.port}"
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise BrimfulError(f"cannot listen on {where}: {why}; choose another --host or --port") from error
        self.listener.setblocking(False)
        self.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        local = ip_address(self.listener.getsockname()[0]).is_loopback
        if not token and not local:
            warn(
                f"--host {config.host} is open to other machines, and {TOKEN} is not set: set it, or keep to"
                " 127.0.0.1 behind a proxy"
            )
        allow_open_files(CONNECTIONS + 64)
        sys.setswitchinterval(SLICE)
        self.clients: dict[Connection, None] = {}
        options: dict[str, Any] = {"ws": "none", "lifespan": "off", "proxy_headers": False}
        options |= {"log_config": None, "log_level": "critical", "access_log": False}
        options |= {"server_header": False, "date_header": False, "timeout_keep_alive": KEPT}
        options["timeout_graceful_shutdown"] = PATIENCE  # for clients that do not read their answers
        options |= {"backlog": BACKLOG, "h11_max_incomplete_event_size": INCOMPLETE}
        options["http"] = partial(Connection, self.metrics, self.clients)
        app = App(self.service, self.metrics, Access(token, local))
        self.server = uvicorn.Server(uvicorn.Config(app, **options))
        self.server.capture_signals = nullcontext  # type: ignore[assignment]

    def run(self, begin: Callable[[], None]) -> dict[str, Any]:
        """Serve until a signal ends it.

        Args:
            begin: is called before the server heeds signals.

        Returns:
            the number of `texts` that were answered.

        Raises:
            BrimfulError: a model cannot be opened.
        """
        with self.listener:
            asyncio.run(self._serve(begin))
        if self.error is not None:
            raise self.error
        (texts,) = self.metrics.texts.collect()
        return {"texts": int(sum(each.value for each in texts.samples if each.name.endswith("_total")))}

    async def _serve(self, begin: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        begin()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self.stale.set)
        tasks = [loop.create_task(self._load()), loop.create_task(self._look())]
        await self.server.serve(sockets=[self.listener])
        for task in tasks:
            task.cancel()

    async def _load(self) -> None:
        """Open the models, and again after signals: once for all that come while models are opened, whose
        folders may have changed since. The first time, an error ends the server; later, it keeps those that
        it has."""
        service = self.service
        self.stale.set()
        while await self.stale.wait():
            self.stale.clear()
            if service.queue.closed:
                continue
            try:
                models = await asyncio.to_thread(open_models, self.config.openings, service.engine.call)
                is_first = not service.models
                service.use(models)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # also a panic of tokenizers, which is no Exception
                if not service.models:
                    self.error, self.server.should_exit = error, True
                    return
                why = str(error) if isinstance(error, BrimfulError) else f"{type(error).__name__}: {error}"
                say(f"serve: the models stay as they are: {why}")
                continue
            names = escape_controls(", ".join(models))
            if not is_first:
                say(f"serve: loaded again: {names}")
            else:
                host, port = self.listener.getsockname()[:2]
                where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
                print(f"serving {names} on {where}", flush=True)

    def _drain(self) -> None:
        """Accept nothing more; a second signal does not wait for what was accepted."""
        self.server.force_exit = self.server.should_exit = self.service.queue.closed
        self.service.queue.closed = True

    async def _look(self) -> None:
        """Look at deadlines and slow clients, and for the end of a drain."""
        queue, drained = self.service.queue, False
        while True:
            await asyncio.sleep(EVERY)
            queue.expire()
            for each in list(self.clients):
                each.look()
            if self.service.engine.lost:
                self.error = BrimfulError(self.service.engine.lost)
            self.server.should_exit |= drained  # a look later: what was on its way has its 503
            drained = queue.closed and not queue.requests


CONNECTIONS = 4096
"""The most connections; for another one, that whose client has been silent for longest gives way."""
DISCARDED = 64 << 20
"""The most bytes of a request: a body that is refused is read to its end, since many clients read an answer
only after they have sent all."""
PATIENCE = 10.0
"""Seconds that a client has for headers, and again for a body; `PACE` bytes give it one more."""
PACE = 256 << 10
KEPT = 75
"""Seconds that a connection stays open without a request, or unread: longer than a proxy keeps it."""


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn reads it, within limits.

    Attributes:
        clients: all connections; that whose client has been silent for longest is the first.
        awaited: what its client was to do at the last look, `since` when, and `size`: bytes that it has sent.
    """

    def __init__(self, metrics: Metrics, clients: dict["Connection", None], **given: Any) -> None:
        super().__init__(**given)
        self.metrics, self.clients, self.ended = metrics, clients, False
        self.awaited, self.since, self.size = tuple[Any, ...](), self.loop.time(), 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app_state, self.clients[self] = {CLIENT: transport}, None
        if len(self.clients) > CONNECTIONS:
            oldest = next(each for each in self.clients if each.owes)
            del self.clients[oldest]
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.clients[self] = self.clients.pop(self)
        self.size += len(data)
        super().data_received(data)
        if self.owes and len(self.conn.trailing_data[0]) > HEADERS:
            self.hang_up(431, "the headers are too long")
        elif self.size > DISCARDED:
            self.hang_up(413, "the request is too long")

    def send_400_response(self, msg: str) -> None:
        self.hang_up(400, "the request is not HTTP/1.1")

    def eof_received(self) -> bool:  # type: ignore[override]
        self.ended = True  # `look` closes it, once its requests are answered
        return not self.owes

    def connection_lost(self, exc: Exception | None) -> None:
        self.clients.pop(self, None)
        super().connection_lost(None)  # after an error it would keep its timer, which keeps it

    @property
    def owes(self) -> bool:
        """Whether no request waits for an answer, so that the client is to send."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def look(self) -> None:
        """End it if its client does not send a request in time, or reads nothing of an answer."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        is_idle = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        awaited = self.cycle, is_idle, unread
        if awaited != self.awaited or not (self.owes or unread):
            self.awaited, self.since, self.size = awaited, now, 0
        is_kept = unread > 0 or (is_idle and self.cycle is not None)
        is_late = now - self.since > (KEPT if is_kept else PATIENCE + self.size / PACE)
        if is_late and not is_kept:
            self.hang_up(408, "the request was not sent in time")
        elif is_late or (self.ended and self.owes and not unread):
            self.transport.abort()

    def hang_up(self, status: int, why: str) -> None:
        """Close it, and say why where no answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            if self.conn.our_state is h11.IDLE:  # else its endpoint counts it
                self.metrics.requests.labels("early", str(status)).inc()
            status, content, headers = in_full(RefusedError(status, why))
            headers += [(b"content-length", b"%d" % len(content)), (b"connection", b"close")]
            response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()
