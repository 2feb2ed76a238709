"""The routes: a request's body in, JSON out, and every error as one line of JSON."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brimful.batching.model import BatchModel
from brimful.batching.queue import LeftError, RefusedError
from brimful.batching.service import Service
from brimful.console import say
from brimful.serving.access import Access
from brimful.serving.answers import classified, embedded, job_of
from brimful.serving.bodies import Body, ClassifyBody, EmbeddingsBody, decoded
from brimful.serving.metrics import Metrics
from brimful.serving.page import page

Headers = list[tuple[bytes, bytes]]
CLIENT = "brimful.client"
"""The key of a scope's state for the transport of its connection; without it, a client never leaves."""
BODY = 8 << 20
"""The most bytes of a body."""
TOO_LARGE = f"the body has more than {BODY:,} bytes"
KINDS = {401: "unauthorized", 404: "not_found", 408: "timeout", 429: "overloaded", 500: "internal"}
KINDS |= {503: "draining", 504: "timeout"}
"""The types of errors by status; of others, invalid_request."""


class Endpoint:
    """A path that takes a body of this kind, and its answer."""

    def __init__(
        self, service: Service, metrics: Metrics, access: Access, kind: type[Body], answer: Callable[..., Any]
    ) -> None:
        self.service, self.metrics, self.access, self.answer = service, metrics, access, answer
        self.decoder = msgspec.json.Decoder(kind)
        self.name = kind.__name__.removesuffix("Body").lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, metrics, status = time.monotonic(), self.metrics, 200
        client = scope.get("state", {}).get(CLIENT)
        try:
            content, headers = await self._answered(scope, receive, client)
            metrics.seconds.observe(time.monotonic() - started)
        except LeftError:
            metrics.requests.labels(self.name, "left").inc()
            return
        except RefusedError as error:
            status, content, headers = error.status, error_json(error), wait_headers(error)
            await discard(scope, receive, status)
        except Exception as error:
            say(f"serve: {self.name}: {type(error).__name__}")
            status, content, headers = 500, error_json(RefusedError(500, "an error of the server")), []
        has_left = client is not None and client.is_closing()
        metrics.requests.labels(self.name, "left" if has_left else str(status)).inc()
        await _send(send, status, content, headers)

    async def _answered(self, scope: Scope, receive: Receive, client: Any) -> tuple[bytes, Headers]:
        service, headers = self.service, dict(scope["headers"])
        service.refuse_if_busy()
        self.access.check_body(headers)
        if int(headers.get(b"content-length", 0)) > BODY:
            raise RefusedError(413, TOO_LARGE)
        content = await read_body(receive)
        service.refuse_if_busy()
        body = decoded(self.decoder, content)
        asked, model = body.asked(), service.model(body.model)
        job = job_of(model, body, asked)
        if client is not None:
            job.has_left = client.is_closing
        await service.finish(job)
        self.metrics.texts.labels(model.name).inc(len(job.results))
        answer = msgspec.json.encode(self.answer(model, body, job.results, asked.single))
        parts = ("queue", job.queued), ("tokenize", job.tokenizing), ("compute", job.computing)
        timing = ", ".join(f"{name};dur={1e3 * seconds:.1f}" for name, seconds in parts)
        about = [(b"server-timing", timing.encode())]
        if cut := sum(bool(result.cut) for result in job.results):  # routers' labels have no place to say it
            about.append((b"x-truncated-texts", b"%d" % cut))
        return answer, about


def error_json(error: RefusedError) -> bytes:
    """The body that answers with an error."""
    kind = KINDS.get(error.status, "invalid_request")
    about = {"message": str(error), "type": kind, "param": None, "code": str(error.status)}
    return msgspec.json.encode({"error": about})


def wait_headers(error: RefusedError) -> Headers:
    """The headers of an error: when to come again, or that another server is to be asked."""
    headers = [] if error.wait is None else [(b"retry-after", b"%d" % error.wait)]
    return [*headers, (b"connection", b"close")] if error.status == 503 else headers


async def read_body(receive: Receive) -> bytes:
    """The body of a request.

    Raises:
        RefusedError: 413.
        LeftError: the client has left.
    """
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY:
            raise RefusedError(413, TOO_LARGE)
    return bytes(body)


async def discard(scope: Scope, receive: Receive, status: int) -> None:
    """Throw a body away before the connection closes, so that a client that still sends reads the answer."""
    headers = dict(scope["headers"])
    options = headers.get(b"connection", b"").lower().split(b",")
    closes = status == 503 or scope["http_version"] == "1.0" or b"close" in map(bytes.strip, options)
    while closes and b"expect" not in headers:
        closes = (await receive()).get("more_body", False)


async def _send(send: Send, status: int, content: bytes, headers: Headers) -> None:
    about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": content})


def for_clients_that_leave(app: ASGIApp) -> ASGIApp:
    """An application whose answers are dropped once nobody is there, which is no fault of the server."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        client, has_left = scope.get("state", {}).get(CLIENT), False

        async def send_if_there(message: Message) -> None:
            nonlocal has_left
            has_left = has_left or (client is not None and client.is_closing())
            if not has_left:
                await send(message)

        await app(scope, receive, send_if_there)
        while has_left and (await receive())["type"] != "http.disconnect":  # uvicorn has yet to notice
            pass

    return wrapped


def create_app(service: Service, metrics: Metrics, access: Access) -> ASGIApp:
    """The ASGI application."""
    shown, about_page = page()
    started = int(time.time())
    classify = Endpoint(service, metrics, access, ClassifyBody, classified)
    embeddings = Endpoint(service, metrics, access, EmbeddingsBody, embedded)

    def json(value: Any, status: int = 200) -> Response:
        return Response(msgspec.json.encode(value), status, media_type="application/json")

    def state(_: Request) -> Response:
        return json({"status": service.state}, 200 if service.state == "ready" else 503)

    def card(model: BatchModel) -> dict[str, Any]:
        return model.card() | {"created": started, "owned_by": "brimful"}

    def models(_: Request) -> Response:
        return json({"object": "list", "data": [card(model) for model in service.models.values()]})

    def model(request: Request) -> Response:
        try:
            return json(card(service.model(request.path_params["name"])))
        except RefusedError as error:
            return refusal(error)

    def refusal(error: RefusedError, headers: Mapping[str, str] | None = None) -> Response:
        metrics.requests.labels("other", str(error.status)).inc()
        return Response(error_json(error), error.status, headers, "application/json")

    async def refused(request: Request, error: Any) -> Response:
        status, why = getattr(error, "status_code", 500), getattr(error, "detail", type(error).__name__)
        if status == 500:
            say(f"serve: {request.url.path}: {why}")
        else:
            await discard(request.scope, request.receive, status)
        found = RefusedError(status, f"{request.method} {request.url.path:.200}: {why}")
        return refusal(found, getattr(error, "headers", None))

    app = Starlette(
        routes=[
            Route("/v1/classify", classify, methods=["POST"]),
            Route("/classify", classify, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", model),
            Route("/health", state),
            Route("/health/live", lambda _: json({"status": "live"})),
            Route("/metrics", lambda _: Response(metrics.text(), media_type="text/plain; version=0.0.4")),
            Route("/", lambda _: Response(shown, headers=about_page)),
        ],
        exception_handlers={HTTPException: refused, Exception: refused},
    )
    app.router.redirect_slashes = False  # its address is the client's Host in plain HTTP

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            access.check(scope)
        except RefusedError as error:
            await discard(scope, receive, error.status)
            about = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            await refusal(error, about)(scope, receive, send)
        else:
            await app(scope, receive, send)

    open_to_pages = CORSMiddleware(
        guarded, access.origins, ["GET", "POST"], ["*"], expose_headers=["Server-Timing", "Retry-After"]
    )
    return for_clients_that_leave(open_to_pages if access.origins else guarded)
