"""What /metrics says."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from brimful.serving.batch_model import BatchModel
from brimful.serving.queue import RequestQueue

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Counters since the start of the server."""

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
        return Histogram(f"brimful_{name}", about, buckets=_SECONDS, registry=self._registry)

    def computed(self, model: BatchModel, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.tokens.labels(model.name).inc(tokens)
        self.batch_seconds.observe(seconds)

    def text(self, queue: RequestQueue) -> bytes:
        """All of them, and what the queue has now, in Prometheus' text format."""
        self._waiting.set(queue.requests)
        self._tokens.set(queue.tokens)
        return generate_latest(self._registry)
