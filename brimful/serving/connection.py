"""A client's connection: how much it may send, how long it may take, and when it gives way to another."""

from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from brimful.serving.access import HEADERS
from brimful.serving.app import CLIENT, Metrics, in_full
from brimful.serving.queue import RefusedError

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
