"""Metrics: what the service counts about itself, and gauges read from the engine when asked for; by prometheus_client.

Every name starts with stream_dr_, but those of the process, which are Prometheus' own (process_...). Each application has a
registry of its own. The middleware that counts is also the last place an error can reach: it answers it as a problem.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import stream_dr
from service import problems
from service.body_limits import Held
from service.schemas import Overview

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""

COUNTED = {
    "rows_appended": "Rows appended to the log.",
    "events_appended": "Events appended to the log.",
    "commits": "Transactions of the log.",
    "duplicates": "Events that were in the log already, by their keys.",
    "refused": "Events that were refused.",
    "publishes": "Projections published.",
    "snapshots": "Snapshots written.",
}
GAUGED = {
    "queued_bytes": "Bytes of batches that wait to be written to the log.",
    "lag": "Events that the live model furthest behind has not applied.",
}
OF_MODELS = {
    "rows": "Rows the model has learned.",
    "lag": "Events of the log that the model has not applied.",
    "stale_rows": "Rows learned that the published projection does not include.",
    "version": "Version of the projection that the model has published; 0: none.",
    "components": "Components of that projection.",
}
"""What figures mean, by their names in the engine."""

STATES = {
    "failed": "1: the model has stopped at an error.",
    "failed_to_publish": "1: the model learns, and what it has learned cannot be solved.",
}
"""What a model's state says, by its name."""


class Metrics:
    """The service's own counters; `listeners` is how many /events connections are open."""

    def __init__(self, directory: stream_dr.Directory, running: stream_dr.Running, held: Held) -> None:
        prometheus_client.disable_created_metrics()
        self.registry = CollectorRegistry()
        self.listeners = 0
        ProcessCollector(registry=self.registry)
        self.registry.register(_Gauges(self, directory, running, held))
        self.requests = self._counter("requests", "Requests answered.", "method", "route", "status")
        self.rows_received = self._counter("rows_received", "Rows taken into the log over HTTP.")
        self.duplicates = self._counter("duplicates", "Batches sent again with their keys and answered as before.")
        self.rows_transformed = self._counter("rows_transformed", "Rows projected.")
        self.seconds = Histogram(
            "stream_dr_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["route"],
            buckets=BUCKETS,
            registry=self.registry,
        )

    def learned(self, receipt: stream_dr.Receipt) -> None:
        """Count a batch that is durable."""
        if receipt.duplicate:
            self.duplicates.inc()
        else:
            self.rows_received.inc(receipt.rows)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"stream_dr_{name}", meaning, labels, registry=self.registry)


class _Gauges(Collector):
    """Figures of the log, the models and the process's memory, read when asked for."""

    def __init__(
        self, metrics: Metrics, directory: stream_dr.Directory, running: stream_dr.Running, held: Held
    ) -> None:
        self._metrics, self._directory, self._running, self._held = metrics, directory, running, held

    def describe(self) -> Iterable[Metric]:
        """Nothing: the engine is not asked while the registry is made."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Every figure as it is now."""
        directory = self._directory
        yield _gauge("position", "Position of the log's last event; -1: it is empty.", directory.position)
        yield _gauge("rows", "Rows in the log.", directory.rows)
        yield _gauge("listeners", "Open /events connections.", self._metrics.listeners)
        yield _gauge("body_bytes", "Bytes of request bodies held in memory.", self._held.bytes)
        anonymous = _anonymous_bytes()
        if anonymous is not None:
            yield _gauge("anonymous_bytes", "Memory of the process without mapped files.", anonymous)
        figures = self._running.figures()
        for name, meaning in COUNTED.items():
            yield CounterMetricFamily(f"stream_dr_engine_{name}", meaning, value=figures[name])
        for name, meaning in GAUGED.items():
            yield _gauge(f"engine_{name}", meaning, figures[name])
        yield from self._of_models()

    def _of_models(self) -> Iterable[Metric]:
        models = Overview.of(self._directory).models.items()
        for name, meaning in OF_MODELS.items():
            family = GaugeMetricFamily(f"stream_dr_model_{name}", meaning, labels=["model", "estimator"])
            for model, figures in models:
                family.add_metric([model, figures.estimator], getattr(figures, name))
            yield family
        for state, meaning in STATES.items():
            family = GaugeMetricFamily(f"stream_dr_model_{state}", meaning, labels=["model"])
            for model, figures in models:
                family.add_metric([model], figures.state == state)
            yield family


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"stream_dr_{name}", meaning, value=value)


def _anonymous_bytes() -> int | None:
    """This process's anonymous memory, which leaves mapped shards out; None where the system does not tell it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


class Observed:
    """The middleware: counts every request, and answers what no handler caught."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0
        started = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except (Exception, asyncio.CancelledError) as error:  # cancelled: the service stops
            answer = problems.answer(scope, error)
            if not status:
                await answer(scope, receive, noting)
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(scope["method"], route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(time.perf_counter() - started)
