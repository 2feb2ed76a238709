"""What /metrics says."""

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from brimful.serving.queue import RequestQueue, Windows
from brimful.serving.service import Part

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TOKENS = (64, 256, 1024, 4096, 16_384, 65_536)


class Metrics:
    """Counters since the start of the server."""

    def __init__(self, queue: Callable[[], RequestQueue]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = self._counter("requests", "Requests by path and status", "path", "status")
        self.texts = self._counter("texts", "Texts that were answered", "model")
        self.tokens = self._counter("tokens", "Tokens that were computed", "model")
        self.batches = self._counter("batches", "Batches that were computed", "model")
        self.failures = self._counter("failures", "Batches that failed", "model")
        self.reloads = self._counter("reloads", "Reloads of the models", "outcome")
        self.seconds = self._histogram("request_seconds", "From a request to its answer", _SECONDS)
        self.batch_seconds = self._histogram("batch_seconds", "Computing a batch", _SECONDS)
        self.batch_tokens = self._histogram("batch_tokens", "Tokens of a batch", _TOKENS)
        for name in ("requests", "tokens"):
            gauge = Gauge(f"brimful_queue_{name}", f"Accepted {name}, not answered", registry=self.registry)
            gauge.set_function(partial(lambda name: float(getattr(queue(), name)), name))

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"brimful_{name}", about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"brimful_{name}", about, buckets=buckets, registry=self.registry)

    def computed(self, batch: Sequence[Part], seconds: float | None) -> None:
        """Count a batch; without seconds, it failed."""
        name, tokens = (
            batch[0].job.model.name,
            sum(part.length for part in batch if isinstance(part, Windows)),
        )
        if seconds is None:
            self.failures.labels(name).inc()
            return
        self.batches.labels(name).inc()
        self.tokens.labels(name).inc(tokens)
        self.batch_seconds.observe(seconds)
        self.batch_tokens.observe(tokens)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self.registry)
