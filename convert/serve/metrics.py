"""Metrics of a server for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ...runtime.base import __version__

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
PREFIX = "candle_convert"


class Metrics:
    """Counters of one server.

    Attributes:
        requests: by endpoint and status.
        seconds: of requests until their last byte, by endpoint.
        first_token: seconds until the first token of generated text.
        tokens: by kind, ``prompt``, ``cached``, ``completion``; ``drafted`` and ``accepted`` of speculative decoding.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(f"{PREFIX}_requests", "Requests.", ("endpoint", "status"), registry=self.registry)
        self.seconds = Histogram(
            f"{PREFIX}_request_seconds", "Seconds of requests.", ("endpoint",), buckets=SECONDS, registry=self.registry
        )
        self.first_token = Histogram(
            f"{PREFIX}_first_token_seconds", "Seconds until the first token.", buckets=SECONDS, registry=self.registry
        )
        self.tokens = Counter(f"{PREFIX}_tokens", "Tokens of texts.", ("kind",), registry=self.registry)
        Gauge(f"{PREFIX}_info", "The program.", ("version",), registry=self.registry).labels(__version__).set(1)

    def watch(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(f"{PREFIX}_{name}", help, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)
