"""A connection of the server: what it refuses unparsed, and that what belongs to a request is parsed."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from brimful.batching.queue import RefusedError
from brimful.serving import server

HEAD = b"POST /v1/classify HTTP/1.1\r\nHost: a\r\n"
WHOLE = HEAD + b"Content-Length: 2\r\n\r\n{}"


class Full:
    """A service that accepts nothing."""

    queue = SimpleNamespace(is_full=True)

    def refuse_if_busy(self) -> None:
        raise RefusedError(429, "the queue is full", 1)


async def unreached(scope: Any, receive: Any, send: Any) -> None:
    """The application."""


def connected() -> tuple[Any, Any]:
    """A connection of a server that accepts nothing, and its transport."""
    config = uvicorn.Config(unreached, log_config=None)
    config.load()
    given = {"config": config, "server_state": ServerState(), "app_state": {}}
    made = server.Connection(Full(), Mock(), **given, _loop=asyncio.get_running_loop())  # type: ignore[arg-type]
    transport = Mock()
    transport.is_closing.side_effect = lambda: transport.close.called
    transport.get_extra_info.return_value = None
    made.connection_made(transport)
    return made, transport


async def said(*pieces: bytes, ends: bool = False) -> tuple[bytes, list[bytes], Any, list[bool]]:
    """What is sent for the pieces that arrive, those that are parsed, the connection, and whether it is
    closed after each; the server `ends` after the first."""
    made, transport = connected()
    parsed: list[bytes] = []
    real = made.parser

    def feed(data: bytes) -> None:
        parsed.append(data)
        real.feed_data(data)

    made.parser = Mock(wraps=real)
    made.parser.feed_data.side_effect = feed
    closed = []
    for piece in pieces:
        made.data_received(piece)
        if ends and not closed:
            made.shutdown()
        closed.append(transport.close.called)
    made.connection_lost(None)
    return b"".join(call.args[0] for call in transport.write.call_args_list), parsed, made, closed


def test_a_full_queue_refuses_whole_requests_unparsed() -> None:
    sent, parsed, made, closed = asyncio.run(said(WHOLE, WHOLE, WHOLE))
    assert sent.count(b"HTTP/1.1 429 ") == sent.count(b"retry-after: 1") == 3
    assert parsed == []
    assert not any(closed)
    assert made.looks is None


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD, WHOLE),  # within a head
        (HEAD + b"Content-Length: 100\r\n\r\n", WHOLE),  # within a body
        (HEAD + b"Content-Length: 2\r\n\r\n{}" + HEAD, WHOLE),  # within the head of a second request
        (b"PO", WHOLE),
    ],
)
def test_what_belongs_to_a_request_is_parsed(pieces: tuple[bytes, ...]) -> None:
    _, parsed, _, _ = asyncio.run(said(*pieces))
    assert parsed == list(pieces)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
def test_the_body_of_a_refused_request_is_read_before_the_connection_closes(
    header: bytes, ends: bool
) -> None:
    """A client that still sends would read a reset instead of its answer."""
    head = HEAD + header + b"Content-Length: 100\r\n\r\n"
    sent, _, _, closed = asyncio.run(said(head, b"a" * 50, b"a" * 50 + WHOLE, ends=ends))
    closes = bool(header) or ends
    assert closed == [False, False, closes]
    assert (b"connection: close" in sent) is bool(header)
    assert sent.count(b"HTTP/1.1 429 ") == (1 if closes else 2)


@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_reads_nothing_is_left(reads: bool) -> None:
    async def is_left() -> list[bool]:
        made, transport = connected()
        made.data_received(WHOLE)
        sizes = [1000, 1000] if not reads else [1000, 999]
        found = []
        for look in range(int(server.KEPT / server.EVERY) + 2):
            transport.get_write_buffer_size.return_value = sizes[look % 2]
            found.append(transport.abort.called)
            made.look()
        return [*found, transport.abort.called]

    found = asyncio.run(is_left())
    assert found == [False] * (len(found) - 1) + [not reads]
