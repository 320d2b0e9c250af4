"""Metrics for Prometheus: counts, times and their quantiles, batches, the queue, workers that died."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

RECENT_REQUESTS = 2048
"""Requests of each version from which the quantiles are computed."""
QUANTILES = (0.5, 0.95, 0.99)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """One registry for each server, so that two in a process do not share numbers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["model", "version"]
        self._requests = Counter(
            "fairway_requests", "Requests by status.", [*labels, "protocol", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "fairway_request_seconds", "Time to answer.", labels, buckets=_SECONDS, registry=self.registry
        )
        self._batches = Histogram(
            "fairway_batch_samples", "Samples in a batch.", buckets=_SAMPLES, registry=self.registry
        )
        self._cached = Counter("fairway_cached", "Requests answered from the cache.", labels, registry=self.registry)
        self._recent: dict[tuple[str, str], deque[float]] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.registry.register(self)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read whenever the metrics are."""
        self._gauges[name] = (description, value)

    def count_request(self, model: str, version: str, protocol: str, status: int, seconds: float) -> None:
        self._requests.labels(model, version, protocol, str(status)).inc()
        if status == 200:
            self._seconds.labels(model, version).observe(seconds)
            self._recent.setdefault((model, version), deque(maxlen=RECENT_REQUESTS)).append(seconds)

    def observe_batch(self, model: int, samples: int) -> None:
        self._batches.observe(samples)

    def count_cached(self, model: str, version: str) -> None:
        self._cached.labels(model, version).inc()

    def collect(self) -> Iterator[Metric]:
        """Yield the quantiles, which the client library of Prometheus does not keep, and the gauges."""
        quantiles = GaugeMetricFamily(
            "fairway_recent_seconds",
            f"Quantiles of the last {RECENT_REQUESTS} answers.",
            labels=["model", "version", "quantile"],
        )
        for (model, version), times in self._recent.items():
            ordered = sorted(times)
            for quantile in QUANTILES:
                index = min(len(ordered) - 1, int(quantile * len(ordered)))
                quantiles.add_metric([model, version, f"{quantile:g}"], ordered[index])
        yield quantiles
        for name, (description, value) in self._gauges.items():
            yield GaugeMetricFamily(name, description, value=value())

    def text(self) -> bytes:
        text: Any = generate_latest(self.registry)
        return bytes(text)
