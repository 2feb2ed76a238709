"""The routes: a request's body in, JSON out, and every error as one line of JSON."""

import hmac
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from brimful.batching.queue import LeftError, RefusedError
from brimful.batching.service import Service
from brimful.console import say
from brimful.serving.answers import classified, embedded, job_of
from brimful.serving.bodies import Body, ClassifyBody, EmbeddingsBody, decoded
from brimful.serving.metrics import Metrics
from brimful.serving.page import page

Headers = list[tuple[bytes, bytes]]
TOKEN = "BRIMFUL_TOKEN"
"""The environment variable with the bearer token that requests must show."""
OPEN = frozenset(["/", "/health", "/health/live"])
"""Paths that need no token; the page asks for it."""
CLIENT = "brimful.client"
"""The key of a scope for its `server.Connection`; without it, a client never leaves."""
BODY = 8 << 20
"""The most bytes of a body."""
TOO_LARGE = f"the body has more than {BODY:,} bytes"
KINDS = {401: "unauthorized", 404: "not_found", 408: "timeout", 429: "overloaded", 500: "internal"}
KINDS |= {503: "draining", 504: "timeout"}
"""The types of errors by status; of others, invalid_request."""
DISCARDED = 8 * BODY
"""The most bytes of a refused body that are thrown away: a client that still sends reads no answer."""
CLOSING = frozenset([408, 413, 431, 503])
"""Statuses after which the connection closes."""


class Endpoint:
    """A path that takes a body of this kind, and its answer."""

    def __init__(
        self, service: Service, metrics: Metrics, kind: type[Body], answer: Callable[..., Any]
    ) -> None:
        self.service, self.metrics, self.answer = service, metrics, answer
        self.decoder = msgspec.json.Decoder(kind)
        self.name = kind.__name__.removesuffix("Body").lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, metrics, status = time.monotonic(), self.metrics, 200
        try:
            content, headers = await self._answered(scope, receive)
            metrics.seconds.observe(time.monotonic() - started)
        except LeftError:
            metrics.requests.labels(self.name, "left").inc()
            return
        except RefusedError as error:
            status, (content, headers) = error.status, said(error)
        except Exception as error:
            say(f"serve: {self.name}: {type(error).__name__}")
            status, (content, headers) = 500, said(RefusedError(500, "an error of the server"))
        metrics.requests.labels(self.name, str(status)).inc()
        await _send(send, status, content, headers)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[bytes, Headers]:
        service, client = self.service, scope.get(CLIENT)
        content = await read_body(scope, receive)
        service.refuse_if_busy()
        body = decoded(self.decoder, content)
        asked, model = body.asked(), service.model(body.model)
        job = job_of(model, body, asked)
        if client is not None:
            job.has_left = client.has_left
        await service.finish(job)
        self.metrics.texts.labels(model.name).inc(len(job.results))
        answer = msgspec.json.encode(self.answer(model, body, job.results, asked.single))
        parts = ("queue", job.queued), ("tokenize", job.tokenizing), ("compute", job.computing)
        timing = ", ".join(f"{name};dur={1e3 * seconds:.1f}" for name, seconds in parts)
        headers = [(b"server-timing", timing.encode())]
        if cut := sum(bool(result.cut) for result in job.results):  # routers' labels have no place to say it
            headers.append((b"x-truncated-texts", b"%d" % cut))
        return answer, headers


def said(error: RefusedError, *, closes: bool = False) -> tuple[bytes, Headers]:
    """The JSON of an error, and its headers.

    Args:
        closes: whether the connection closes even if the status is not in `CLOSING`.
    """
    kind = KINDS.get(error.status, "invalid_request")
    content = msgspec.json.encode({"error": {"message": str(error), "type": kind, "code": error.status}})
    headers = [] if error.wait is None else [(b"retry-after", b"%d" % error.wait)]
    if closes or error.status in CLOSING:
        headers.append((b"connection", b"close"))
    return content, headers


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The body of a request.

    Raises:
        RefusedError: 413; 415 if it is compressed.
        LeftError: the client has left.
    """
    parts, length = list[bytes](), 0
    async for piece in pieces_of(receive):
        length += len(piece)
        if length <= BODY:
            parts.append(piece)
    if length > BODY:
        raise RefusedError(413, TOO_LARGE)
    if dict(scope["headers"]).get(b"content-encoding", b"identity").lower() != b"identity":
        raise RefusedError(415, "the body is compressed; send it as it is, without Content-Encoding")
    return b"".join(parts)


async def pieces_of(receive: Receive) -> AsyncIterator[bytes]:
    """The pieces of a body, up to `DISCARDED` bytes.

    Raises:
        LeftError: the client has left.
    """
    length, more = 0, True
    while more and length <= DISCARDED:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftError
        piece = message.get("body", b"")
        length += len(piece)
        more = message.get("more_body", False)
        yield piece


async def discard(scope: Scope, receive: Receive) -> None:
    """Throw a body away before the connection closes, so that a client that still sends reads the answer."""
    headers = dict(scope["headers"])
    options = headers.get(b"connection", b"").lower().split(b",")
    closes = scope["http_version"] == "1.0" or b"close" in map(bytes.strip, options)
    if closes and b"expect" not in headers:
        with suppress(LeftError):
            async for _ in pieces_of(receive):
                pass


async def _send(send: Send, status: int, content: bytes, headers: Headers) -> None:
    about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": content})


def create_app(service: Service, metrics: Metrics) -> Callable[[Scope, Receive, Send], Any]:
    """The ASGI application; a bearer token in the environment guards it."""
    shown, about_page = page()
    wanted = os.environ.get(TOKEN, "").encode()
    classify = Endpoint(service, metrics, ClassifyBody, classified)
    embeddings = Endpoint(service, metrics, EmbeddingsBody, embedded)

    def json(value: Any, status: int = 200) -> Response:
        return Response(msgspec.json.encode(value), status, media_type="application/json")

    def state(_: Request) -> Response:
        return json({"status": service.state}, 200 if service.state == "ready" else 503)

    def models(_: Request) -> Response:
        return json({"object": "list", "data": [model.card() for model in service.models.values()]})

    def refusal(error: RefusedError, headers: Mapping[str, str] | None = None) -> Response:
        metrics.requests.labels("other", str(error.status)).inc()
        return Response(said(error)[0], error.status, headers, "application/json")

    async def refused(request: Request, error: Any) -> Response:
        status, why = getattr(error, "status_code", 500), getattr(error, "detail", type(error).__name__)
        if status == 500:
            say(f"serve: {request.url.path}: {why}")
        else:
            await discard(request.scope, request.receive)
        found = RefusedError(status, f"{request.method} {request.url.path:.200}: {why}")
        return refusal(found, getattr(error, "headers", None))

    app = Starlette(
        routes=[
            Route("/v1/classify", classify, methods=["POST"]),
            Route("/classify", classify, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", state),
            Route("/health/live", lambda _: json({"status": "live"})),
            Route("/metrics", lambda _: Response(metrics.text(), media_type="text/plain; version=0.0.4")),
            Route("/", lambda _: Response(shown, headers=about_page)),
        ],
        exception_handlers={HTTPException: refused, Exception: refused},
    )
    app.router.redirect_slashes = False  # its address is the client's Host in plain HTTP

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN:
            given = b"".join(value for name, value in scope["headers"] if name == b"authorization")
            kind, _, token = given.partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), wanted):
                await discard(scope, receive)
                found = RefusedError(401, "the token is missing or wrong: send Authorization: Bearer TOKEN")
                await refusal(found, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded if wanted else app
