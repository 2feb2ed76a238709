"""A server and clients that send too much, too slowly, half, nonsense, or leave: sockets to one process,
whose limits are low, and whose garbage nobody collects."""

import http.client
import json
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest

from builders.sockets import HEAD, LIVE, Running, answered, running, text_of

CODE = """
import gc
import sys
gc.disable()
from brimful.cli.main import main
from brimful.serving import server
server.REQUEST_SECONDS, server.MAX_CONNECTIONS, server.BYTES_PER_SECOND = 1.0, 20, 4 << 20
code = main(sys.argv[1:])
alive = [each for each in gc.get_objects() if isinstance(each, server.Connection)]
print(sum(each.conn.their_state is not server.h11.ERROR for each in alive), code)
"""
"""It prints how many connections are left in memory; h11's errors keep theirs, and are young garbage."""
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ASK = HEAD + b'Content-Length: 14\r\n\r\n{"text": "w1"}'
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def server(quick):
    with running(quick, code=CODE) as found:
        yield found
        out, err = found.end()
    alive, code = out.splitlines()[-1].split()
    assert (int(alive) <= 2, code, err) == (True, "0", "")  # cycles of closed connections are broken


def counts(server: Running) -> dict[str, float]:
    """What /metrics says of requests."""
    with server.connect(LIVE.replace(b"/health/live", b"/metrics")) as connection:
        lines = answered(connection)[1].decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if line.startswith("brimful_requests_total"))
    return {name.partition("{")[2]: float(value) for name, _, value in rows}


def resident(server: Running) -> int:
    """Its kB in memory."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.parametrize(
    "endless",
    [
        b"0\r\n" + b"A: bcdefgh\r\n" * (3 * MEGABYTE),
        b"0\r\nA: " + b"b" * (30 * MEGABYTE),
        b"1;" + b"a" * (30 * MEGABYTE),
    ],
    ids=["trailers", "one trailer", "an extension"],
)
def test_what_is_neither_header_nor_body_is_bounded(server, endless):
    before = resident(server)
    with server.connect(CHUNKED + endless[:100_000]) as connection:
        status, body = answered(connection)
        assert (status, json.loads(body)["error"]["type"]) == (431, "invalid_request")
        with pytest.raises(OSError):
            connection.sendall(endless)
    assert resident(server) < before + 20_000


@pytest.mark.parametrize("part", [b"0\r\nA: b\r\n", b"1;aaaa\r\nb\r\n", b"100\r\naaa"])
def test_a_request_that_never_ends_has_a_limit_in_seconds(server, part):
    started = time.monotonic()
    with server.connect(CHUNKED) as connection:
        connection.settimeout(0.1)
        said = b""
        while not said and time.monotonic() < started + 20:
            connection.sendall(part[:1])
            part = part[1:] + part[:1]
            with suppress(TimeoutError):
                said = connection.recv(65536)
    assert said.startswith((b"HTTP/1.1 408 Request Timeout\r\n", b"HTTP/1.1 400 "))


def test_trailers_and_extensions_are_allowed(server):
    body = b'7;a=b\r\n{"text"\r\n7 \r\n: "w1"}\r\n0\r\nA: b\r\nC: d\r\n\r\n'
    with server.connect(CHUNKED + body) as connection:
        assert answered(connection)[0] == 200
        connection.sendall(LIVE)
        assert answered(connection)[0] == 200


def test_the_connection_that_was_silent_for_longest_gives_way(server):
    kept = [server.connect(LIVE) for _ in range(20)]
    assert {answered(each)[0] for each in kept} == {200}
    kept[0].sendall(LIVE)  # so the second is the oldest
    assert answered(kept[0])[0] == 200
    others = [server.connect(LIVE) for _ in range(5)]
    assert {answered(each)[0] for each in others} == {200}
    assert [text_of(each) for each in kept[1:6]] == [""] * 5
    for each in (kept[0], *kept[6:], *others):
        each.sendall(LIVE)
        assert answered(each)[0] == 200
        each.close()


@pytest.mark.parametrize(
    ("requests", "expected"), [([ASK], 1), ([LIVE], 1), ([ASK, LIVE, ASK], 3), ([ASK[:-1]], 0)]
)
def test_a_client_that_sends_no_more_is_answered(server, requests, expected):
    with server.connect(b"".join(requests)) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert text_of(connection).count("HTTP/1.1 200 OK\r\n") == expected


def test_clients_that_leave_are_no_fault(server):
    before = counts(server)
    for request in (LIVE * 20, ASK * 8, ASK[:-1], LIVE.replace(b"live", b"none") * 20):
        for _ in range(10):
            connection = server.connect(request)
            if request != ASK[:-1]:  # which gets no answer
                connection.recv(1)
                connection.sendall(request)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    time.sleep(0.3)
    after = counts(server)
    assert not [name for name in after if "50" in name]
    assert after['path="classify",status="left"}'] > before.get('path="classify",status="left"}', 0)


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        (LIVE.replace(b"1.1", b"2.0"), "505 HTTP Version Not Supported"),
        (b"GET /health/live\r\n\r\n", "400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", "400 Bad Request"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "400 Bad Request"),
        (LIVE[:-2] + b"Cookie: " + b"a" * 66_000 + b"\r\n\r\n", "431 Request Header Fields Too Large"),
        (LIVE[:-2] + b"Cookie: " + b"a" * 200_000, "431 Request Header Fields Too Large"),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "404 Not Found"),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_what_is_not_spoken_is_refused_in_the_words_of_http(server, request_, line):
    with server.connect(request_) as connection:
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert f"{response.status} {response.reason}" == line
        assert json.loads(response.read())["error"]["code"] == line[:3]


def test_nonsense_behind_requests_is_refused_after_their_answers(server):
    said = text_of(server.connect(ASK + LIVE + b"\x00nonsense\r\n\r\n" + LIVE))
    assert [part[:3] for part in said.split("HTTP/1.1 ")[1:]] == ["200", "200", "400"]


def test_nonsense_in_a_body_that_was_refused_is_no_fault(server):
    for path in (b"/nothing", b"/v1/classify"):
        text_of(server.connect(CHUNKED.replace(b"/v1/classify", path) + b"nonsense\r\n" + LIVE))
        with server.connect(CHUNKED.replace(b"/v1/classify", path).replace(b"json", b"xml")) as connection:
            answered(connection)
            connection.sendall(b"nonsense\r\n")
            assert text_of(connection) == ""


def test_a_body_behind_an_upgrade_is_no_request(server):
    head = HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(LIVE)
    said = text_of(server.connect(head + LIVE + LIVE[:-2] + b"Connection: close\r\n\r\n"))
    assert said.count("HTTP/1.1 ") == 2
    assert "not JSON" in said


def test_an_empty_line_does_not_keep_a_connection(server):
    connection = server.connect(LIVE)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    connection.sendall(b"\r\n")
    text_of(connection)  # which ends
