"""The ASGI application: a request's body in, JSON out, and every error as one line of JSON."""

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
from brimful.base.types import Values
from brimful.serving.access import Access, HeaderList, Headers
from brimful.serving.batch_model import BatchModel
from brimful.serving.bodies import (
    MAX_BODY_BYTES,
    TOO_LARGE,
    Body,
    BodyReader,
    ClassifyBody,
    EmbeddingsBody,
    decode_body,
    make_request,
)
from brimful.serving.queue import LeftError, RefusedError, RequestQueue
from brimful.serving.service import Service

Scope = Values
"""The description of a request by ASGI."""
Response = tuple[int, bytes, HeaderList]
"""A status, a body, and headers."""
CLIENT = "brimful.client"
"""The key of the connection's transport in a scope's state. Without a transport, a client never leaves."""
LARGE_ANSWER_NUMBERS = 10_000
"""The most numbers of an answer that is written in the loop's thread; larger ones are written in another."""
POSTS: dict[str, type[Body]] = {"/v1/classify": ClassifyBody, "/v1/embeddings": EmbeddingsBody}
"""The kinds of bodies that are posted, by path."""
BUCKET_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""The upper bounds of the buckets of the histograms in /metrics."""
ERROR_TYPES = {
    401: "unauthorized",
    404: "not_found",
    408: "timeout",
    429: "overloaded",
    500: "internal",
    503: "draining",
    504: "timeout",
}
"""The types of errors by status; with any other status an error is an invalid_request."""


class Metrics:
    """The counters of /metrics since the start of the server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        common: Values = {"namespace": "brimful", "registry": self._registry}
        buckets = {"buckets": BUCKET_SECONDS, **common}
        self.requests = Counter("requests", "Requests by path and status", ("path", "status"), **common)
        self.texts = Counter("texts", "Texts that were answered", ("model",), **common)
        self.tokens = Counter("tokens", "Tokens that were computed", ("model",), **common)
        self.seconds = Histogram("request_seconds", "From a request to its answer", **buckets)
        self.batch_seconds = Histogram("batch_seconds", "Computing a batch", **buckets)
        self._queue_requests = Gauge("queue_requests", "Requests accepted and not answered", **common)
        self._queue_tokens = Gauge("queue_tokens", "Tokens of these requests", **common)

    def count_batch(self, model: BatchModel, tokens: int, seconds: float) -> None:
        self.tokens.labels(model.name).inc(tokens)
        self.batch_seconds.observe(seconds)

    def write(self, queue: RequestQueue) -> bytes:
        """Return all metrics, and what the queue holds now, in Prometheus' text format."""
        self._queue_requests.set(queue.requests)
        self._queue_tokens.set(queue.tokens)
        return generate_latest(self._registry)


class App:
    """The ASGI application."""

    def __init__(self, service: Service, metrics: Metrics, access: Access) -> None:
        self.service, self.metrics, self.access = service, metrics, access
        self.started, self.page = int(time.time()), read_page()

    async def __call__(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        client = scope.get("state", {}).get(CLIENT)
        reader = BodyReader(receive)
        # The metrics count requests that post a body and refusals; requests that read a page have no name.
        counted_as = ""
        response = None
        try:
            self.access.check(scope, headers)
            if method == "POST" and path in POSTS:
                counted_as = path.removeprefix("/v1/")
                response = await self._answer_body(POSTS[path], headers, reader, client)
            else:
                response = self._show(method, path)
        except LeftError:
            pass
        except RefusedError as error:
            counted_as = counted_as or "other"
            response = error_response(error, b"POST" if path in POSTS else b"GET, HEAD")
            options = map(bytes.strip, headers.get(b"connection", b"").lower().split(b","))
            is_closing = error.status == 503 or scope["http_version"] == "1.0" or b"close" in options
            if is_closing and b"expect" not in headers:
                # A client that still sends would not read the answer, and find its connection reset.
                await reader.discard()
        except Exception as error:
            say(f"serve: {path:.200}: {type(error).__name__}")  # the message may hold a text
            counted_as = counted_as or "other"
            response = error_response(RefusedError(500, "an error of the server"))
        if response is None or (client is not None and client.is_closing()):
            self.metrics.requests.labels(counted_as or "other", "left").inc()
            # uvicorn complains of an application that ends without an answer before it has seen the end.
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, content, response_headers = response
        if counted_as:
            self.metrics.requests.labels(counted_as, str(status)).inc()
        response_headers = [*response_headers, (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": response_headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer_body(
        self, schema: type[Body], headers: Headers, reader: BodyReader, client: Any
    ) -> Response:
        started, service = time.monotonic(), self.service
        # Refusals that need no body come first: under load they must cost little.
        service.refuse_if_busy()
        self.access.check_body(headers)
        if int(headers.get(b"content-length", 0)) > MAX_BODY_BYTES:
            raise RefusedError(413, TOO_LARGE)
        body = decode_body(schema, await reader.read())
        model = service.find_model(body.model)
        request = make_request(model, body)
        if client is not None:
            request.has_left = client.is_closing
        times = await service.finish(request)
        texts = request.results
        self.metrics.texts.labels(model.name).inc(len(texts))
        if len(texts) * max(len(model.labels), model.width) > LARGE_ANSWER_NUMBERS:
            content = await asyncio.to_thread(body.write_answer, model, texts)
        else:
            content = body.write_answer(model, texts)
        response_headers = [(b"content-type", b"application/json")]
        if times:
            timing = ", ".join(f"{name};dur={1e3 * seconds:.1f}" for name, seconds in times.items())
            response_headers.append((b"server-timing", timing.encode()))
        self.metrics.seconds.observe(time.monotonic() - started)
        return 200, content, response_headers

    def _show(self, method: str, path: str) -> Response:
        """Return what GET shows at a path; refuse another path with 404, another method with 405."""
        service = self.service
        if path == "/":
            response = (200, *self.page)
        elif path == "/health":
            response = json_response({"status": service.state}, 200 if service.state == "ready" else 503)
        elif path == "/health/live":
            response = json_response({"status": "live"})
        elif path == "/metrics":
            media_type = (b"content-type", b"text/plain; version=0.0.4")
            response = (200, self.metrics.write(service.queue), [media_type])
        elif path == "/v1/models":
            entries = [self._describe(model) for model in service.models.values()]
            response = json_response({"object": "list", "data": entries})
        elif path.startswith("/v1/models/"):
            model = service.find_model(path.removeprefix("/v1/models/"))
            response = json_response(self._describe(model))
        elif path not in POSTS:
            raise RefusedError(404, f"{method} {path:.200}: there is nothing here")
        if path in POSTS or method not in ("GET", "HEAD"):
            raise RefusedError(405, f"{method} {path:.200}: another method is needed")
        return response

    def _describe(self, model: BatchModel) -> Values:
        return model.describe() | {"created": self.started, "owned_by": "brimful"}


def json_response(value: Any, status: int = 200) -> Response:
    return status, msgspec.json.encode(value), [(b"content-type", b"application/json")]


def error_response(error: RefusedError, methods: bytes = b"") -> Response:
    """Return the response to a request that is refused; `methods` are those that its path has."""
    details = {
        "message": str(error),
        "type": error.kind or ERROR_TYPES.get(error.status, "invalid_request"),
        "param": None,
        "code": str(error.status),
    }
    response = json_response({"error": details}, error.status)
    headers = response[2]
    if error.wait is not None:
        headers.append((b"retry-after", b"%d" % error.wait))
    if error.status == 503:  # so that the next request goes to another server
        headers.append((b"connection", b"close"))
    elif error.status == 405:
        headers.append((b"allow", methods))
    elif error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return response


def read_page() -> tuple[bytes, HeaderList]:
    """Return the page at `/` in UTF-8, and its headers. It runs its own script, and asks its own server.

    Its style and its script are allowed by their hashes, so nothing that reached the page as text could run.
    """
    text = _read_resource("brimful.serving", "page.html")
    text = text.replace("/* base.css */", _read_resource("brimful.reports", "base.css"))
    policy = (
        f"default-src 'none'; script-src {_hash_of('script', text)}; style-src {_hash_of('style', text)}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return text.encode(), [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]


def _read_resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _hash_of(tag: str, text: str) -> str:
    """Return the source expression of the page's one inline `tag`."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
