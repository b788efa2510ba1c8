"""Prometheus metrics: counters of requests, and gauges of the engine.

Names start with `stream_dr_`. Metrics of the process have Prometheus' own names (`process_...`).
Each application has a registry of its own.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import stream_dr
from service import problems
from service.request_bodies import BodyMemory
from service.schemas import JsonDict
from stream_dr.errors import DirectoryMissing

LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""

ENGINE_COUNTERS = {
    "rows_appended": "Rows appended to the log.",
    "events_appended": "Events appended to the log.",
    "commits": "Transactions of the log.",
    "duplicates": "Events that were in the log already, by their keys.",
    "refused": "Events that were refused.",
    "publishes": "Projections published.",
    "snapshots": "Snapshots written.",
}
"""Description of each counter of the engine, by the counter's name."""

ENGINE_GAUGES = {
    "queued_bytes": "Bytes of batches that wait to be written to the log.",
    "lag": "Events that the live model furthest behind has not applied.",
}
"""Description of each gauge of the engine, by the gauge's name."""

DISK_GAUGES = {
    "free_bytes": "Free bytes on the disk.",
    "min_free_bytes": "Free bytes below which batches are refused.",
}
"""Description of each gauge of the disk, by its key in `Running.health`."""

MODEL_GAUGES = {
    "rows": "Rows the model has learned.",
    "lag": "Events of the log that the model has not applied.",
    "stale_rows": "Rows learned or unlearned since the published projection.",
    "version": "Version of the projection that the model has published; 0: none.",
    "components": "Components of that projection.",
    "accuracy": "Share of the tested rows whose label was predicted correctly. Only for labels.",
    "r2": "R² on the tested rows, averaged over the targets. Only for numeric targets.",
    "tested_rows": "Newest rows that were predicted before the model learned them.",
    "published_timestamp_seconds": "Time at which that projection was published, in seconds since 1970.",
    "solve_seconds": "Seconds that the last solution took; 0: none since the start.",
}
"""Description of each metric of a model, by the metric's name."""

MODEL_STATES = {
    "failed": "1: the model has stopped at an error.",
    "failed_to_publish": "1: the model learns, and what it has learned cannot be solved.",
}
"""Description of each metric that is 1 if a model is in a state, by the state's name."""


class Metrics:
    """Counters of the service, and the registry of all metrics.

    Attributes
    ----------
    listeners : int
        Number of open /events connections.
    """

    def __init__(self, directory: stream_dr.Directory, running: stream_dr.Running, memory: BodyMemory) -> None:
        prometheus_client.disable_created_metrics()
        self.registry = CollectorRegistry()
        self.listeners = 0
        ProcessCollector(registry=self.registry)
        self.registry.register(_EngineCollector(self, directory, running, memory))

        self.requests = self._add_counter("requests", "Requests answered.", "method", "route", "status")
        self.rows_transformed = self._add_counter("rows_transformed", "Rows projected.")
        meaning = "1: the service is ready, as /readyz says; 0: it is not."
        self.ready = Gauge("stream_dr_ready", meaning, registry=self.registry)
        meaning = "Time from a request's head to the end of its answer."
        self.request_seconds = Histogram(
            "stream_dr_request_seconds", meaning, ["route"], buckets=LATENCY_BUCKETS, registry=self.registry
        )

    def _add_counter(self, name: str, description: str, *label_names: str) -> Counter:
        return Counter(f"stream_dr_{name}", description, label_names, registry=self.registry)


class _EngineCollector(Collector):
    """Metrics of the log, the models and the process's memory.

    The values are read when Prometheus asks for the metrics.
    """

    def __init__(
        self, metrics: Metrics, directory: stream_dr.Directory, running: stream_dr.Running, memory: BodyMemory
    ) -> None:
        self._metrics = metrics
        self._directory = directory
        self._running = running
        self._memory = memory

    def describe(self) -> Iterable[Metric]:
        """Return no metrics.

        The Prometheus client calls this method when the collector is registered. No value of the
        engine is read at that time.
        """
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield every metric with its current value."""
        build = GaugeMetricFamily("stream_dr_build_info", "1, with the service's version.", labels=["version"])
        build.add_metric([stream_dr.__version__], 1)
        yield build

        directory = self._directory
        yield _gauge_metric("position", "Position of the log's last event; -1: it is empty.", directory.position)
        yield _gauge_metric("rows", "Rows ever appended to the log.", directory.rows)
        yield _gauge_metric("listeners", "Open /events connections.", self._metrics.listeners)
        yield _gauge_metric("body_bytes", "Bytes of request bodies held in memory.", self._memory.bytes)

        anonymous = _anonymous_memory_bytes()
        if anonymous is not None:
            yield _gauge_metric("anonymous_bytes", "Memory of the process without mapped files.", anonymous)

        with suppress(DirectoryMissing):
            health = self._running.health()
            for name, meaning in DISK_GAUGES.items():
                yield _gauge_metric(name, meaning, health[name])

        figures = self._running.figures()
        for name, meaning in ENGINE_COUNTERS.items():
            yield CounterMetricFamily(f"stream_dr_engine_{name}", meaning, value=figures[name])
        for name, meaning in ENGINE_GAUGES.items():
            yield _gauge_metric(f"engine_{name}", meaning, figures[name])
        yield from self._collect_model_gauges()

    def _collect_model_gauges(self) -> Iterable[Metric]:
        models = [self._model_values(model) for model in self._directory.models.values()]
        for name, meaning in MODEL_GAUGES.items():
            family = GaugeMetricFamily(f"stream_dr_model_{name}", meaning, labels=["model", "estimator"])
            for model in models:
                value = model.get(name)
                if value is not None:
                    family.add_metric([model["name"], model["estimator"]], value)
            yield family
        for state, meaning in MODEL_STATES.items():
            family = GaugeMetricFamily(f"stream_dr_model_{state}", meaning, labels=["model"])
            for model in models:
                family.add_metric([model["name"]], model["state"] == state)
            yield family

    def _model_values(self, model: stream_dr.Model) -> JsonDict:
        """Return a model's description with the values of its metrics."""
        values = model.describe(self._directory.position)
        scores = self._running.scores(model)
        values |= scores
        values["tested_rows"] = scores.get("tested")
        values["solve_seconds"] = model.solving.seconds
        if model.published is not None:
            values["published_timestamp_seconds"] = model.published.timestamp
        return values


def _gauge_metric(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(f"stream_dr_{name}", description, value=value)


def _anonymous_memory_bytes() -> int | None:
    """Return the size of this process's anonymous memory, in bytes.

    Anonymous memory is all resident memory except mapped files, such as the shards of the log.
    None if the system does not report the size.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


class MetricsMiddleware:
    """Middleware that counts requests and responds to uncaught errors.

    This middleware surrounds the routes, `AccessMiddleware` and `BodyLimitsMiddleware`. So the
    errors of all of them arrive here.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its status and duration."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        status = 0
        started = time.perf_counter()

        async def send_recording_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        # When the service stops, it cancels running requests, which raises CancelledError here.
        try:
            await self.app(scope, receive, send_recording_status)
        except (Exception, asyncio.CancelledError) as error:
            response = problems.log_and_respond(scope, error)
            # The error can be sent only if no response has started.
            # `status` is 0 until a response starts.
            if not status:
                await response(scope, receive, send_recording_status)

        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(scope["method"], route, str(status)).inc()
        self.metrics.request_seconds.labels(route).observe(time.perf_counter() - started)
