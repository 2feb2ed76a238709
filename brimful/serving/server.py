"""The process: its socket, its signals, and connections of clients that are slow, many, or leave."""

import asyncio
import os
import re
import signal
import socket
import sys
from contextlib import nullcontext
from functools import partial
from ipaddress import ip_address
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from brimful.batching.model import open_models
from brimful.batching.queue import RefusedError
from brimful.batching.service import Service
from brimful.console import say, warn
from brimful.errors import BrimfulError
from brimful.serving.app import BODY, CLIENT, CLOSING, DISCARDED, TOKEN, TOO_LARGE, create_app, said
from brimful.serving.config import ServeConfig
from brimful.serving.metrics import Metrics
from brimful.system import allow_open_files

HEADERS = 64 << 10
"""The most bytes of a request before its body."""
PATIENCE = 10.0
"""Seconds that a client has to send its request, counted in looks: more where the loop is slow."""
CONNECTIONS = 4096
"""The most connections; on more, requests get 429."""
KEPT = 75
"""Seconds that a connection stays open without a request, or unread: longer than a proxy keeps it."""
SLICE = 1e-4
"""Seconds that a thread keeps Python's lock: 5 ms of refusals would hold up each operation of the engine."""
UPGRADES = "brimful.upgrades"
"""The key of a scope for whether the client asks for another protocol, after which no body would be read."""
HEAD = re.compile(rb"POST [!-~]+ HTTP/1\.1((?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*)*)")
ODD = frozenset([b"expect", b"transfer-encoding", b"upgrade"])
"""Headers that change how a request is read."""
EVERY = 0.1
"""Seconds between two looks at deadlines and slow clients."""


class Connection(HttpToolsProtocol):
    """A client's connection.

    Attributes:
        crowded: whether it is one too many.
        left: whether it is over.
        begun: whether the parser is within a request.
        looks: how often `Process` has looked since it began to wait for a request; None: it waits for none.
        unread: bytes that the client has not read; `stuck` is how often a look found them the same.
        before: bytes that were sent of it before the body.
        ends: whether it closes once the request is there in full.
        sent: its cycle, once its headers are there.
    """

    def __init__(self, service: Service, metrics: Metrics, **given: Any) -> None:
        super().__init__(**given)
        self.service, self.metrics = service, metrics

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.crowded, self.left, self.before = len(self.connections) > CONNECTIONS, False, 0
        self.begun = self.ends = False
        self.looks: int | None = 0
        self.unread = self.stuck = 0
        self.sent: RequestResponseCycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.left = True
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def has_left(self) -> bool:
        """Whether it is over."""
        return self.left

    def data_received(self, data: bytes) -> None:
        if (
            self.is_idle
            and not self.begun
            and not self.crowded
            and self.service.queue.is_full
            and is_whole(data)
        ):
            try:
                self.service.refuse_if_busy()
            except RefusedError as error:  # parsing costs many times as much
                self.looks = None
                self._write(error)
                if error.status in CLOSING:
                    self.transport.close()
                self.on_response_complete()
                return
        self.before += len(data)
        super().data_received(data)
        if self.is_idle and not self.begun and self.looks is None and not self.timeout_keep_alive_task:
            self.looks = 0  # after an empty line uvicorn would wait for ever
        if self.looks is not None and self.before > HEADERS:
            self.hang_up(RefusedError(431, "the headers are too long"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.looks, self.sent, self.begun = 0, None, True
        self.scope[CLIENT] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self.scope[UPGRADES] = self.parser.should_upgrade()  # type: ignore[literal-required]
        super().on_headers_complete()
        self.before, self.sent = -(1 << 62), self.cycle  # the body is counted elsewhere

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.looks, self.before, self.begun = None, 0, False
        if self.ends:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Refuse at once what the application would refuse, in a fifth of the time. What a client still sends
        is thrown away: many read their answers only after they have sent all."""
        if self.transport.is_closing():  # after what was refused
            return
        told = int(dict(cycle.scope["headers"]).get(b"content-length", 0))
        try:
            if self.crowded:
                raise RefusedError(429, "too many connections", 1)
            if cycle.scope[UPGRADES]:  # type: ignore[literal-required]
                raise RefusedError(400, "only HTTP/1.1 is spoken here; leave Upgrade out")
            if told > BODY:
                raise RefusedError(413, TOO_LARGE)
            if cycle.scope["method"] == "POST":
                self.service.refuse_if_busy()
            super()._start_asgi_task(cycle, app)
        except RefusedError as error:
            cycle.response_started = cycle.response_complete = True
            closes = self.crowded or error.status in {400, *CLOSING} or not cycle.keep_alive
            self._write(error, closes=closes)
            self.ends = closes and cycle.more_body and error.status != 400 and told <= DISCARDED
            if closes and not self.ends:
                self.transport.close()
            self.on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self.hang_up(RefusedError(400, "the request is not HTTP/1.1"))

    def look(self) -> None:
        """End it if its client does not send a request in time, or reads nothing of an answer."""
        unread = self.transport.get_write_buffer_size()
        self.stuck = self.stuck + 1 if unread and unread == self.unread else 0
        self.unread = unread
        if self.stuck > KEPT / EVERY:
            self.transport.abort()
        elif self.looks is not None and (self.flow.write_paused or not self.flow.read_paused):
            self.looks += 1
            if self.looks > PATIENCE / EVERY:
                self.hang_up(RefusedError(408, "the request was not sent in time"))

    def hang_up(self, error: RefusedError) -> None:
        """Answer a request that is not there in full, and close; one before it, whose answer is still to
        come, has its time first."""
        is_first = not self.pipeline and (self.sent is self.cycle or self.is_idle)
        if is_first and not self.transport.is_closing():
            if self.sent is None or not self.sent.response_started:
                self._write(error, closes=True)
            self.transport.close()

    def shutdown(self) -> None:
        if self.begun and self.sent is not None and self.sent.response_complete:  # its body is coming
            self.ends = True
        else:
            super().shutdown()

    def _write(self, error: RefusedError, *, closes: bool = False) -> None:
        self.metrics.requests.labels("early", str(error.status)).inc()
        if self.flow.write_paused:  # the client sends and reads nothing
            self.transport.abort()
        else:
            self.transport.write(in_full(error, closes=closes))


def is_whole(data: bytes) -> bool:
    """Whether these bytes are one POST in full, of those that need no parser to see it."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or not (found := HEAD.fullmatch(head)):
        return False
    lines = found[1].lower().split(b"\r\n")[1:]
    fields = {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    is_usual = len(fields) == len(lines) and fields.pop(b"connection", b"keep-alive") == b"keep-alive"
    return is_usual and ODD.isdisjoint(fields) and fields.get(b"content-length") == b"%d" % len(body)


def in_full(error: RefusedError, *, closes: bool = False) -> bytes:
    """The response of an error, as it is sent."""
    content, headers = said(error, closes=closes)
    lines = [b"HTTP/1.1 %d Refused" % error.status, *(b"%s: %s" % header for header in headers)]
    return b"\r\n".join([*lines, b"content-length: %d" % len(content), b"", content])


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
        kind: dict[str, Any] = {"family": socket.AF_INET6 if ":" in config.host else socket.AF_INET}
        kind["dualstack_ipv6"] = config.host == "::" and socket.has_dualstack_ipv6()
        try:
            self.listener = socket.create_server((config.host, config.port), **kind, backlog=2048)
        except OSError as error:
            where = f"--host {config.host} --port {config.port}"
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise BrimfulError(f"cannot listen on {where}: {why}; choose another --host or --port") from error
        self.listener.setblocking(False)
        self.accepted: set[asyncio.Task[Any]] = set()
        address = self.listener.getsockname()[0]
        if not os.environ.get(TOKEN) and not ip_address(address).is_loopback:
            warn(
                f"--host {config.host} is open to other machines, and {TOKEN} is not set: set it, or keep to"
                " 127.0.0.1 behind a proxy"
            )
        allow_open_files(CONNECTIONS + 64)
        sys.setswitchinterval(SLICE)
        options: dict[str, Any] = {"ws": "none", "lifespan": "off", "proxy_headers": False}
        options |= {"log_config": None, "log_level": "critical", "access_log": False}
        options |= {"server_header": False, "date_header": False, "timeout_keep_alive": KEPT}
        options["timeout_graceful_shutdown"] = int(PATIENCE)  # for clients that do not read their answers
        options["http"] = partial(Connection, self.service, self.metrics)
        self.server = uvicorn.Server(uvicorn.Config(create_app(self.service, self.metrics), **options))
        self.server.capture_signals = nullcontext  # type: ignore[assignment]

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
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self.loading, looking = loop.create_task(self._load()), loop.create_task(self._look())
        await self.server.serve(sockets=[self.listener])
        looking.cancel()

    async def _load(self) -> None:
        """Open the models. The first time, an error ends the server; later, it keeps those that it has."""
        service, again = self.service, bool(self.service.models)
        try:
            models = await asyncio.to_thread(open_models, self.config.openings, service.engine.call)
        except Exception as error:
            if again:
                self.metrics.reloads.labels("failed").inc()
                why = str(error) if isinstance(error, BrimfulError) else f"{type(error).__name__}: {error}"
                say(f"serve: the models stay as they are: {why}")
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

    def _accept(self) -> None:
        """Accept all connections that wait: uvloop accepts one a turn, and under load a turn takes long."""
        loop, server = asyncio.get_running_loop(), self.server
        while server.started and not server.should_exit:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # none waits
                return
            made: Any = server.config.http_protocol_class
            given = {"server_state": server.server_state, "app_state": server.lifespan.state}
            protocol = partial(made, config=server.config, **given)
            task = loop.create_task(loop.connect_accepted_socket(protocol, connection))
            self.accepted.add(task)
            task.add_done_callback(self.accepted.discard)

    async def _look(self) -> None:
        """Look at deadlines and slow clients, for connections that wait, and for the end of a drain."""
        queue = self.service.queue
        while True:
            await asyncio.sleep(EVERY)
            self._accept()
            queue.expire()
            for each in list(self.server.server_state.connections):
                if isinstance(each, Connection):
                    each.look()
            if self.service.engine.lost:
                self.error = BrimfulError(self.service.engine.lost)
            if queue.closed and not queue.requests:
                self.server.should_exit = True
