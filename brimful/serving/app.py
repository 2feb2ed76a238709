"""The routes: a request's body in, JSON out, and every error as one line of JSON."""

import asyncio
import hmac
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from brimful.console import say
from brimful.prediction.batches import BatchModel
from brimful.serving.bodies import Body, ClassifyBody, EmbeddingsBody, Headers, RefusedError, decoded
from brimful.serving.config import ServeConfig
from brimful.serving.engine import Engine
from brimful.serving.metrics import Metrics
from brimful.serving.models import card, check_classify, check_embeddings, classified, embedded, job_of
from brimful.serving.page import page
from brimful.serving.queue import Job, LeftError, Queue

TOKEN = "BRIMFUL_TOKEN"
"""The environment variable with the bearer token that requests must show."""
OPEN = frozenset(["/", "/health", "/health/live"])
"""Paths that need no token; the page asks for it."""
CLIENT = "brimful.client"
"""The key of a scope for its `server.Connection`; without it, a client never leaves."""
BODY = 8 << 20
"""The most bytes of a body."""
DISCARDED = 8 * BODY
"""Bytes of a larger one that are read and thrown away before it is refused: a client that sends reads no
answer."""


class Service:
    """What all requests share.

    Attributes:
        models: by name; empty until they are loaded.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.models: dict[str, BatchModel] = {}
        self.queue = Queue(config.queue_requests, self._over)
        self.metrics = Metrics(lambda: self.queue.requests, lambda: self.queue.tokens)
        self.engine = Engine(self.queue, self.metrics)
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self, models: dict[str, BatchModel]) -> None:
        """Answer with these models from now on."""
        queue, most = self.queue, self.config.queue_tokens
        queue.speed = min(model.speed for model in models.values())
        queue.most_tokens = int(queue.speed * self.config.deadline / 2) if most is None else most
        self.models = models

    @property
    def state(self) -> str:
        """ready, loading, draining, or why the engine has stopped."""
        if self.engine.lost:
            return self.engine.lost
        return "draining" if self.queue.closed else "ready" if self.models else "loading"

    def model(self, name: str | None) -> BatchModel:
        """The model that a request means.

        Raises:
            RefusedError: it is not served, or the request must say which.
        """
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        known = ", ".join(self.models)
        if name is None:
            raise RefusedError(422, f"several models are served; name one as model: {known}")
        if name not in self.models:
            raise RefusedError(404, f"no model is called {name!r:.100}; served: {known}")
        return self.models[name]

    async def finish(self, job: Job) -> None:
        """Wait until a job is over.

        Raises:
            RefusedError, LeftError: why it has no results.
        """
        self._loop = asyncio.get_running_loop()
        job.future = self._loop.create_future()
        self.queue.admit(job)
        await job.future
        if job.error is not None:
            raise job.error

    def _over(self, jobs: list[Job]) -> None:
        if jobs and self._loop is not None:
            self._loop.call_soon_threadsafe(_wake, jobs)


def _wake(jobs: list[Job]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)


class Endpoint:
    """A path that takes a body: a `check` of what the model can answer, then its `answer`."""

    def __init__(
        self, service: Service, kind: type[Body], check: Callable[..., None], answer: Callable[..., Any]
    ) -> None:
        self.service, self.check, self.answer = service, check, answer
        self.decoder = msgspec.json.Decoder(kind)
        self.name = kind.__name__.removesuffix("Body").lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, metrics, status = time.monotonic(), self.service.metrics, 200
        headers: Headers
        try:
            content, headers = await self._answered(scope, receive)
            metrics.seconds.observe(time.monotonic() - started)
        except RefusedError as error:
            status, content, headers = error.status, error.body(), error.headers
        except LeftError:
            metrics.requests.labels(self.name, "left").inc()
            return
        except Exception as error:
            say(f"serve: {self.name}: {type(error).__name__}")
            status, content, headers = 500, RefusedError(500, "an error of the server").body(), ()
        metrics.requests.labels(self.name, str(status)).inc()
        await _send(send, status, content, headers)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[bytes, Headers]:
        service, client = self.service, scope.get(CLIENT)
        if client is not None and client.crowded:
            raise RefusedError(429, "too many connections", (b"retry-after", b"1"), (b"connection", b"close"))
        service.queue.refuse_if_full()
        if service.state != "ready":
            raise RefusedError(503, f"the server is {service.state}")
        body = decoded(self.decoder, await read_body(scope, receive))
        asked, model, clock = body.asked(), service.model(body.model), service.queue.clock
        self.check(model, body)
        job = job_of(model, body, asked, deadline=clock() + service.config.deadline)
        if client is not None:
            job.has_left = client.has_left
        if job.texts:
            await service.finish(job)
        content = msgspec.json.encode(self.answer(model, body, job.results, asked.single))
        waited = max(0.0, clock() - job.arrived - job.tokenizing - job.computing) if job.texts else 0.0
        parts = ("queue", waited), ("tokenize", job.tokenizing), ("compute", job.computing)
        timing = ", ".join(f"{name};dur={1e3 * seconds:.1f}" for name, seconds in parts)
        headers = [(b"server-timing", timing.encode())]
        if cut := sum(bool(result.cut) for result in job.results):  # routers' labels have no place to say it
            headers.append((b"x-truncated-texts", b"%d" % cut))
        return content, tuple(headers)


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The body of a request.

    Raises:
        RefusedError: 413.
        LeftError: the client has left.
    """
    told = next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
    parts, length, more = list[bytes](), 0, told <= DISCARDED
    while more and length <= DISCARDED:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftError
        length += len(message.get("body", b""))
        if length <= BODY:
            parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    if max(told, length) > BODY:
        raise RefusedError(413, f"the body has more than {BODY:,} bytes", (b"connection", b"close"))
    return b"".join(parts)


async def _send(send: Send, status: int, content: bytes, headers: Headers) -> None:
    about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": content})


def create_app(service: Service) -> Callable[[Scope, Receive, Send], Any]:
    """The ASGI application; a bearer token in the environment guards it."""
    shown, about_page = page()
    wanted = b"Bearer " + os.environ.get(TOKEN, "").encode()
    classify = Endpoint(service, ClassifyBody, check_classify, classified)
    embeddings = Endpoint(service, EmbeddingsBody, check_embeddings, embedded)

    def json(value: Any, status: int = 200) -> Response:
        return Response(msgspec.json.encode(value), status, media_type="application/json")

    def state(_: Request) -> Response:
        return json({"status": service.state}, 200 if service.state == "ready" else 503)

    def models(_: Request) -> Response:
        return json({"object": "list", "data": list(map(card, service.models.values()))})

    async def refused(request: Request, error: Any) -> Response:
        said = RefusedError(error.status_code, f"{request.method} {request.url.path:.200}: {error.detail}")
        return Response(said.body(), error.status_code, error.headers, "application/json")

    app = Starlette(
        routes=[
            Route("/v1/classify", classify, methods=["POST"]),
            Route("/classify", classify, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", state),
            Route("/health/live", lambda _: json({"status": "live"})),
            Route(
                "/metrics", lambda _: Response(service.metrics.text(), media_type="text/plain; version=0.0.4")
            ),
            Route("/", lambda _: Response(shown, headers=about_page)),
        ],
        exception_handlers={HTTPException: refused},
    )

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN:
            given = b"".join(value for name, value in scope["headers"] if name == b"authorization")
            if not hmac.compare_digest(given, wanted):
                said = RefusedError(401, "the token is missing or wrong: send Authorization: Bearer TOKEN")
                await _send(send, 401, said.body(), ((b"www-authenticate", b"Bearer"),))
                return
        await app(scope, receive, send)

    return guarded if wanted != b"Bearer " else app
