"""The application: a request's body in, JSON out, and every error as one line of JSON."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from brimful.base.console import say
from brimful.serving.access import Access
from brimful.serving.batch_model import BatchModel
from brimful.serving.bodies import ClassifyBody, EmbeddingsBody, decoded
from brimful.serving.counters import Metrics
from brimful.serving.page import page
from brimful.serving.queue import LeftError, RefusedError
from brimful.serving.replies import classified, embedded, job_of
from brimful.serving.service import Service

Scope = dict[str, Any]
"""Of a request, as ASGI has it; `Receive` gives the pieces of its body."""
Receive = Callable[[], Any]
Headers = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]
Answer = tuple[int, bytes, Pairs]
"""A status, a body, and headers."""
Post = tuple[str, "msgspec.json.Decoder[Any]", Callable[..., Any]]
CLIENT = "brimful.client"
"""The key of a scope's state for the transport of its connection; without it, a client never leaves."""
BODY = 8 << 20
"""The most bytes of a body."""
TOO_LARGE = f"the body has more than {BODY:,} bytes"
LARGE = 10_000
"""Numbers of an answer that is written beside the loop."""
KINDS = {401: "unauthorized", 404: "not_found", 408: "timeout", 429: "overloaded", 500: "internal"}
KINDS |= {503: "draining", 504: "timeout"}
"""The types of errors by status; of others, invalid_request."""


class App:
    """The ASGI application.

    Attributes:
        posts: the name in metrics, the decoder of bodies, and the form of answers, by path.
    """

    def __init__(self, service: Service, metrics: Metrics, access: Access) -> None:
        self.service, self.metrics, self.access = service, metrics, access
        self.started, self.page = int(time.time()), page()
        classify = "classify", msgspec.json.Decoder(ClassifyBody), classified
        embeddings = "embeddings", msgspec.json.Decoder(EmbeddingsBody), embedded
        self.posts: dict[str, Post] = {
            "/v1/classify": classify,
            "/classify": classify,
            "/v1/embeddings": embeddings,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Callable[[Any], Any]) -> None:
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        client, shared = scope.get("state", {}).get(CLIENT), self.access.shared(headers)
        name, answer, arriving = "", None, until_read(receive)
        try:
            if method == "OPTIONS" and shared:  # a browser asks whether a page may
                answer = 204, b"", list[tuple[bytes, bytes]]()
            else:
                self.access.check(scope, headers)
                if method == "POST" and path in self.posts:
                    name = self.posts[path][0]
                    answer = await self._computed(path, headers, arriving, client)
                else:
                    answer = self._shown(method, path)
        except LeftError:
            pass
        except RefusedError as error:
            name, answer = name or "other", in_full(error, b"POST" if path in self.posts else b"GET, HEAD")
            await discard(scope, headers, arriving, error.status)
        except Exception as error:
            say(f"serve: {path:.200}: {type(error).__name__}")
            name, answer = name or "other", in_full(RefusedError(500, "an error of the server"))
        has_left = client is not None and client.is_closing()
        if answer is None or has_left:
            self.metrics.requests.labels(name or "other", "left").inc()
            while (await receive())["type"] != "http.disconnect":  # uvicorn has yet to notice
                pass
            return
        status, content, about = answer
        if name:
            self.metrics.requests.labels(name, str(status)).inc()
        about = [*about, *shared, (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": about})
        await send({"type": "http.response.body", "body": content})

    async def _computed(self, path: str, headers: Headers, receive: Receive, client: Any) -> Answer:
        """What models say of a body."""
        started, service, (_, decoder, form) = time.monotonic(), self.service, self.posts[path]
        service.refuse_if_busy()
        self.access.check_body(headers)
        if int(headers.get(b"content-length", 0)) > BODY:
            raise RefusedError(413, TOO_LARGE)
        content = await read_body(receive)
        service.refuse_if_busy()
        body = decoded(decoder, content)
        asked, model = body.asked(), service.model(body.model)
        job = job_of(model, body, asked)
        if client is not None:
            job.has_left = client.is_closing
        await service.finish(job)
        self.metrics.texts.labels(model.name).inc(len(job.results))
        write = lambda: as_json(form(model, body, job.results, asked.single))  # noqa: E731
        is_large = len(job.results) * max(len(model.labels), model.width) > LARGE
        status, content, about = await asyncio.to_thread(write) if is_large else write()
        parts = ("queue", job.queued), ("tokenize", job.tokenizing), ("compute", job.computing)
        timing = ", ".join(f"{name};dur={1e3 * seconds:.1f}" for name, seconds in parts)
        about.append((b"server-timing", timing.encode()))
        if cut := sum(bool(result.cut) for result in job.results):  # routers' labels have no place to say it
            about.append((b"x-truncated-texts", b"%d" % cut))
        self.metrics.seconds.observe(time.monotonic() - started)
        return status, content, about

    def _shown(self, method: str, path: str) -> Answer:
        """What a path shows.

        Raises:
            RefusedError: 404 or 405.
        """
        service = self.service
        match path:
            case "/":
                found = 200, *self.page
            case "/health":
                found = as_json({"status": service.state}, 200 if service.state == "ready" else 503)
            case "/health/live":
                found = as_json({"status": "live"})
            case "/metrics":
                found = 200, self.metrics.text(), [(b"content-type", b"text/plain; version=0.0.4")]
            case "/v1/models":
                found = as_json({"object": "list", "data": [*map(self._card, service.models.values())]})
            case _ if path.startswith("/v1/models/"):
                found = as_json(self._card(service.model(path.removeprefix("/v1/models/"))))
            case _ if path not in self.posts:
                raise RefusedError(404, f"{method} {path:.200}: there is nothing here")
        if path in self.posts or method not in ("GET", "HEAD"):
            raise RefusedError(405, f"{method} {path:.200}: another method is needed")
        return found

    def _card(self, model: BatchModel) -> dict[str, Any]:
        return model.card() | {"created": self.started, "owned_by": "brimful"}


def as_json(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return status, msgspec.json.encode(value), [(b"content-type", b"application/json")]


def in_full(error: RefusedError, methods: bytes = b"") -> Answer:
    """The answer of an error.

    Args:
        methods: that the path has.
    """
    kind = KINDS.get(error.status, "invalid_request")
    about = {"message": str(error), "type": kind, "param": None, "code": str(error.status)}
    status, content, headers = as_json({"error": about}, error.status)
    more = {
        b"retry-after": error.wait is not None and b"%d" % error.wait,
        b"connection": error.status == 503 and b"close",  # another server is to be asked
        b"allow": error.status == 405 and methods,
        b"www-authenticate": error.status == 401 and b"Bearer",
    }
    return status, content, headers + [(name, value) for name, value in more.items() if value]


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


def until_read(receive: Receive) -> Receive:
    """The same; but after the end of a body it says that again, and does not wait for the client to leave."""
    last: list[Any] = []

    async def wrapped() -> Any:
        message = last[0] if last else await receive()
        if not message.get("more_body", False):
            last[:] = [{**message, "body": b""}]
        return message

    return wrapped


async def discard(scope: Scope, headers: Headers, receive: Receive, status: int) -> None:
    """Throw a body away before the connection closes, so that a client that still sends reads the answer."""
    options = headers.get(b"connection", b"").lower().split(b",")
    closes = status == 503 or scope["http_version"] == "1.0" or b"close" in map(bytes.strip, options)
    while closes and b"expect" not in headers:
        closes = (await receive()).get("more_body", False)
