"""What /metrics says."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TOKENS = (64, 256, 1024, 4096, 16_384, 65_536)


class Metrics:
    """Counters of a server since its start."""

    def __init__(self, requests: Callable[[], int], tokens: Callable[[], int]) -> None:
        """
        Args:
            requests, tokens: that are accepted and not answered yet.
        """
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"brimful_{name}", help, labels, registry=self.registry)

        self.requests = counter("requests", "Requests by path and status", "path", "status")
        self.texts = counter("texts", "Texts that were answered", "model")
        self.tokens = counter("tokens", "Tokens that were computed", "model")
        self.batches = counter("batches", "Batches that were computed", "model")
        self.failures = counter("failures", "Batches that failed", "model")
        self.reloads = counter("reloads", "Reloads of all models", "outcome")
        self.seconds = Histogram(
            "brimful_request_seconds", "From arrival to answer", buckets=_SECONDS, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "brimful_batch_seconds", "Computing a batch", buckets=_SECONDS, registry=self.registry
        )
        self.batch_tokens = Histogram(
            "brimful_batch_tokens", "Tokens of a batch", buckets=_TOKENS, registry=self.registry
        )
        for name, help, value in (
            ("queue_requests", "Requests that are accepted and not answered yet", requests),
            ("queue_tokens", "Tokens of those", tokens),
        ):
            gauge = Gauge(f"brimful_{name}", help, registry=self.registry)
            gauge.set_function(value)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self.registry)
