"""The routes: a request's body in, JSON out; and every error as one line of JSON."""

import asyncio
import hmac
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from brimful.console import say
from brimful.serving.answers import check_classify, check_embeddings, classified, embedded
from brimful.serving.bodies import ClassifyBody, EmbeddingsBody, RefusedError, decoded
from brimful.serving.config import TOKEN, ServeConfig
from brimful.serving.engine import Engine
from brimful.serving.metrics import Metrics
from brimful.serving.models import Model
from brimful.serving.queue import GoneError, Job, Queue

PAGE = Path(__file__).with_name("page.html")
DISCARDED = 8
"""How many times as many bytes as a body may have are read and thrown away before 413 answers."""
CLIENT = "brimful.client"
"""The key of a scope for its connection (`server.Connection`), whose `left` says that the client has left."""
_JSON = (b"content-type", b"application/json")
_OPEN = frozenset(["/", "/health", "/health/live"])
"""Paths that need no token; the page asks for it."""


class Service:
    """What all requests share.

    Attributes:
        models: by name; empty until they are loaded.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.models: dict[str, Model] = {}
        self.queue = Queue(config.queue_requests, self._over)
        self.metrics = Metrics(lambda: self.queue.requests, lambda: self.queue.tokens)
        self.engine = Engine(self.queue, self.metrics)
        self.token = os.environ.get(TOKEN, "").encode()
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self, models: dict[str, Model]) -> None:
        """Answer with these models from now on."""
        self.queue.speed = min(model.speed for model in models.values())
        most = self.config.queue_tokens
        self.queue.most_tokens = int(self.queue.speed * self.config.deadline / 2) if most is None else most
        self.models = models

    @property
    def state(self) -> str:
        """ready, loading, draining, or why the engine has stopped."""
        if self.engine.lost is not None:
            return self.engine.lost
        return "draining" if self.queue.closed else "ready" if self.models else "loading"

    def model(self, name: str | None) -> Model:
        """The model that a request means.

        Raises:
            RefusedError: it is not served, or the request must say which.
        """
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        known = ", ".join(self.models)
        if name is None:
            raise RefusedError(422, f"several models are served; say which as model: {known}")
        if name not in self.models:
            raise RefusedError(404, f"no model is called {name!r:.100}; served: {known}")
        return self.models[name]

    async def results(self, job: Job) -> Job:
        """The job, once it is over.

        Raises:
            RefusedError, GoneError: why it has no results.
        """
        if job.texts:
            self._loop = asyncio.get_running_loop()
            job.future = self._loop.create_future()
            self.queue.admit(job)
            await job.future
            if job.error is not None:
                raise job.error
        return job

    def _over(self, jobs: list[Job]) -> None:
        if jobs and self._loop is not None:
            self._loop.call_soon_threadsafe(_wake, jobs)


def _wake(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)


class Endpoint:
    """POST with a JSON body.

    Args:
        kind: of the body.
        check: refuses what the model cannot answer.
        answer: the JSON of a job's results.
    """

    def __init__(
        self,
        service: Service,
        kind: type[Any],
        check: Callable[[Model, Any], None],
        answer: Callable[..., Any],
    ) -> None:
        self.service, self.kind, self.check, self.answer = service, kind, check, answer
        self.path = "/v1/classify" if kind is ClassifyBody else "/v1/embeddings"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.monotonic()
        metrics = self.service.metrics
        try:
            status, (content, headers) = 200, await self._answer(scope, receive)
        except RefusedError as error:
            status, content, headers = error.status, error.body(), error.headers
        except GoneError:
            metrics.requests.labels(self.path, "499").inc()
            return
        except Exception as error:
            say(f"serve: {self.path}: {type(error).__name__}")
            status, content = 500, RefusedError(500, f"{type(error).__name__} in the server").body()
            headers = ()
        await send(_start(status, content, headers))
        await send({"type": "http.response.body", "body": content})
        metrics.requests.labels(self.path, str(status)).inc()
        if status == 200:
            metrics.seconds.observe(time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
        service, client = self.service, scope.get(CLIENT)
        if client is not None and client.crowded:
            raise RefusedError(
                429, "too many connections", ((b"retry-after", b"1"), (b"connection", b"close"))
            )
        if service.state != "ready":
            raise RefusedError(503, f"the server is {service.state}")
        if service.queue.is_full:
            raise service.queue.full()
        body = decoded(self.kind, await read_body(scope, receive, service.config.body_bytes))
        asked, model = body.read(), service.model(body.model)
        self.check(model, body)
        job = model.job(
            asked,
            body.overflow,
            deadline=service.queue.clock() + service.config.deadline,
            is_gone=(lambda: False) if client is None else client.has_left,
        )
        await service.results(job)
        content = msgspec.json.encode(self.answer(model, body, job.results, asked.single))
        waited = (service.queue.clock() - job.arrived - job.tokenizing - job.computing) * 1e3
        timing = (
            f"queue;dur={max(waited, 0.0) if job.texts else 0.0:.1f},"
            f" tokenize;dur={job.tokenizing * 1e3:.1f}, compute;dur={job.computing * 1e3:.1f}"
        )
        return content, ((b"server-timing", timing.encode()),)


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body of a request.

    Raises:
        RefusedError: 413, after what a client sends has been read, unless that is far too much.
        GoneError: the client left.
    """
    body = bytearray()
    length = 0
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > DISCARDED * most:
            raise _too_large(most)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        part = message.get("body", b"")
        length += len(part)
        if length <= most:
            body += part
        elif length > DISCARDED * most:
            raise _too_large(most)
        if not message.get("more_body", False):
            break
    if length > most:
        raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> RefusedError:
    return RefusedError(413, f"the body has more than {most:,} bytes", ((b"connection", b"close"),))


def _start(status: int, content: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Message:
    length = (b"content-length", b"%d" % len(content))
    return {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}


def create_app(service: Service) -> Any:
    """The ASGI application."""

    def health(request: Request) -> Response:
        ready = service.state == "ready"
        return _json({"status": service.state}, 200 if ready else 503)

    def live(request: Request) -> Response:
        return _json({"status": "live"})

    def models(request: Request) -> Response:
        return _json({"object": "list", "data": [model.card() for model in service.models.values()]})

    def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def page(request: Request) -> Response:
        return Response(PAGE.read_bytes(), media_type="text/html; charset=utf-8")

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path:.200} is not served: {error.detail}"
        refusal = RefusedError(error.status_code, message)
        return Response(refusal.body(), error.status_code, error.headers, "application/json")

    app = Starlette(
        routes=[
            Route(
                "/v1/classify",
                Endpoint(service, ClassifyBody, check_classify, classified),
                methods=["POST"],
            ),
            Route(
                "/v1/embeddings",
                Endpoint(service, EmbeddingsBody, check_embeddings, embedded),
                methods=["POST"],
            ),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/health/live", live),
            Route("/metrics", metrics),
            Route("/", page),
        ],
        exception_handlers={HTTPException: refused},
    )
    return Guarded(app, service.token) if service.token else app


class Guarded:
    """An application behind a bearer token."""

    def __init__(self, app: Any, token: bytes) -> None:
        self.app, self.wanted = app, b"Bearer " + token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            given = b"".join(value for name, value in scope["headers"] if name == b"authorization")
            if not hmac.compare_digest(given, self.wanted):
                refusal = RefusedError(401, f"show the token: Authorization: Bearer ${TOKEN}")
                headers = ((b"www-authenticate", b"Bearer"),)
                await send(_start(401, refusal.body(), headers))
                await send({"type": "http.response.body", "body": refusal.body()})
                return
        await self.app(scope, receive, send)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
