"""The application: a request's body in, JSON out, and every error as one line of JSON."""

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from importlib import resources
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from brimful.base.console import say
from brimful.serving.access import Access
from brimful.serving.batch_model import BatchModel
from brimful.serving.bodies import (
    MAX_BODY_BYTES,
    TOO_LARGE,
    BodyReader,
    ClassifyBody,
    EmbeddingsBody,
    classified,
    decoded,
    embedded,
    request_of,
)
from brimful.serving.queue import LeftError, RefusedError, RequestQueue
from brimful.serving.service import Service

Scope = dict[str, Any]
"""Of a request, as ASGI has it."""
Headers = dict[bytes, bytes]
Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]
"""A status, a body, and headers."""
Post = tuple[str, "msgspec.json.Decoder[Any]", Callable[..., Any]]
CLIENT = "brimful.client"
"""The key of a scope's state for the transport of its connection; without it, a client never leaves."""
LARGE_ANSWER_NUMBERS = 10_000
"""An answer with more is written beside the loop."""
BUCKET_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Of the histograms in /metrics."""
KINDS = {401: "unauthorized", 404: "not_found", 408: "timeout", 429: "overloaded", 500: "internal"}
KINDS |= {503: "draining", 504: "timeout"}
"""The types of errors by status; of others, invalid_request."""


class Metrics:
    """What /metrics says: counters since the start of the server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = self._counter("requests", "Requests by path and status", "path", "status")
        self.texts = self._counter("texts", "Texts that were answered", "model")
        self.tokens = self._counter("tokens", "Tokens that were computed", "model")
        self.seconds = self._histogram("request_seconds", "From a request to its answer")
        self.batch_seconds = self._histogram("batch_seconds", "Computing a batch")
        self._waiting = Gauge("brimful_queue_requests", "Accepted, not answered", registry=self._registry)
        self._tokens = Gauge("brimful_queue_tokens", "Theirs", registry=self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"brimful_{name}", about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str) -> Histogram:
        return Histogram(f"brimful_{name}", about, buckets=BUCKET_SECONDS, registry=self._registry)

    def computed(self, model: BatchModel, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.tokens.labels(model.name).inc(tokens)
        self.batch_seconds.observe(seconds)

    def text(self, queue: RequestQueue) -> bytes:
        """All of them, and what the queue has now, in Prometheus' text format."""
        self._waiting.set(queue.requests)
        self._tokens.set(queue.tokens)
        return generate_latest(self._registry)


class App:
    """The ASGI application.

    Attributes:
        posts: the name in metrics, the decoder of bodies, and the form of answers, by path.
    """

    def __init__(self, service: Service, metrics: Metrics, access: Access) -> None:
        self.service, self.metrics, self.access = service, metrics, access
        self.started, self.page = int(time.time()), page()
        self.posts: dict[str, Post] = {
            "/v1/classify": ("classify", msgspec.json.Decoder(ClassifyBody), classified),
            "/v1/embeddings": ("embeddings", msgspec.json.Decoder(EmbeddingsBody), embedded),
        }

    async def __call__(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        client = scope.get("state", {}).get(CLIENT)
        name, answer, arriving = "", None, BodyReader(receive)
        try:
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
            if closes(scope, headers, error.status) and b"expect" not in headers:
                await arriving.discard()  # else a client that still sends would not read the answer
        except Exception as error:
            say(f"serve: {path:.200}: {type(error).__name__}")
            name, answer = name or "other", in_full(RefusedError(500, "an error of the server"))
        if answer is None or (client is not None and client.is_closing()):
            self.metrics.requests.labels(name or "other", "left").inc()
            while (await receive())["type"] != "http.disconnect":  # uvicorn has yet to notice
                pass
            return
        status, content, about = answer
        if name:
            self.metrics.requests.labels(name, str(status)).inc()
        about = [*about, (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": about})
        await send({"type": "http.response.body", "body": content})

    async def _computed(self, path: str, headers: Headers, arriving: BodyReader, client: Any) -> Answer:
        """What models say of a body."""
        started, service, (_, decoder, form) = time.monotonic(), self.service, self.posts[path]
        service.refuse_if_busy()
        self.access.check_body(headers)
        if int(headers.get(b"content-length", 0)) > MAX_BODY_BYTES:
            raise RefusedError(413, TOO_LARGE)
        body = decoded(decoder, await arriving.read())
        model = service.model(body.model)
        request = request_of(model, body)
        if client is not None:
            request.has_left = client.is_closing
        times = await service.finish(request)
        texts = request.results
        self.metrics.texts.labels(model.name).inc(len(texts))
        write = lambda: as_json(form(model, body, texts))  # noqa: E731
        is_large = len(texts) * max(len(model.labels), model.width) > LARGE_ANSWER_NUMBERS
        status, content, about = await asyncio.to_thread(write) if is_large else write()
        timing = ", ".join(f"{name};dur={1e3 * seconds:.1f}" for name, seconds in times.items())
        if timing:
            about.append((b"server-timing", timing.encode()))
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
                found = (
                    200,
                    self.metrics.text(service.queue),
                    [(b"content-type", b"text/plain; version=0.0.4")],
                )
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


def closes(scope: Scope, headers: Headers, status: int) -> bool:
    """Whether the connection closes after an answer with this status."""
    options = headers.get(b"connection", b"").lower().split(b",")
    return status == 503 or scope["http_version"] == "1.0" or b"close" in map(bytes.strip, options)


def as_json(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return status, msgspec.json.encode(value), [(b"content-type", b"application/json")]


def in_full(error: RefusedError, methods: bytes = b"") -> Answer:
    """The answer of an error.

    Args:
        methods: that the path has.
    """
    kind = error.kind or KINDS.get(error.status, "invalid_request")
    about = {"message": str(error), "type": kind, "param": None, "code": str(error.status)}
    status, content, headers = as_json({"error": about}, error.status)
    more = {
        b"retry-after": error.wait is not None and b"%d" % error.wait,
        b"connection": error.status == 503 and b"close",  # another server is to be asked
        b"allow": error.status == 405 and methods,
        b"www-authenticate": error.status == 401 and b"Bearer",
    }
    return status, content, headers + [(name, value) for name, value in more.items() if value]


def page() -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The page at `/` in UTF-8, and its headers: it runs its own script, and asks its own server.

    Its style and its script are allowed by their hashes, so nothing that reached the page as text could run.
    """
    text = _resource("brimful.serving", "page.html")
    text = text.replace("/* base.css */", _resource("brimful.reports", "base.css"))
    policy = (
        f"default-src 'none'; script-src {_hash_of('script', text)}; style-src {_hash_of('style', text)}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    return text.encode(), headers


def _resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _hash_of(tag: str, text: str) -> str:
    """The source expression of the page's one inline `tag`."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
