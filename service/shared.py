"""State that all requests share: metrics, and the parser of received batches.

The metrics are counters of requests and gauges of the engine, for Prometheus. Names start with
`stream_dr_`. Metrics of the process have Prometheus' own names (`process_...`). Each application
has a registry of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import stream_dr
from service import problems
from service.guards import BodyFormat, BodyMemory
from service.problems import ServiceError
from service.schemas import JsonDict
from service.settings import Settings
from stream_dr.errors import DirectoryMissing, StreamDRError, remove_stack_frames

T = TypeVar("T")

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
        # Without this call, each counter would also have the time at which it was created.
        disable_created_metrics()
        self.registry = CollectorRegistry()
        # Number of clients that read GET /events. The route counts them here.
        self.listeners = 0
        ProcessCollector(registry=self.registry)
        self.registry.register(_EngineCollector(self, directory, running, memory))

        self.requests = Counter(
            "stream_dr_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.rows_transformed = Counter("stream_dr_rows_transformed", "Rows projected.", registry=self.registry)
        self.ready = Gauge(
            "stream_dr_ready", "1: the service is ready, as /readyz says; 0: it is not.", registry=self.registry
        )
        self.request_seconds = Histogram(
            "stream_dr_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["route"],
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )


@dataclass(eq=False)
class _EngineCollector(Collector):
    """Metrics of the directory's log of batches, of the models and of the process's memory.

    The values are read when Prometheus asks for the metrics.
    """

    metrics: Metrics
    directory: stream_dr.Directory
    running: stream_dr.Running
    memory: BodyMemory

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

        directory = self.directory
        yield _gauge_metric("position", "Position of the log's last event; -1: it is empty.", directory.position)
        yield _gauge_metric("rows", "Rows ever appended to the log.", directory.rows)
        yield _gauge_metric("listeners", "Open /events connections.", self.metrics.listeners)
        yield _gauge_metric("body_bytes", "Bytes of request bodies held in memory.", self.memory.bytes)

        # Mapped files, such as the shards of the log, are resident memory that is not anonymous.
        with suppress(FileNotFoundError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    _, kibibytes, _ = line.split()
                    anonymous = int(kibibytes) * 1024
                    yield _gauge_metric("anonymous_bytes", "Memory of the process without mapped files.", anonymous)

        with suppress(DirectoryMissing):
            health = self.running.health()
            for name, meaning in DISK_GAUGES.items():
                yield _gauge_metric(name, meaning, health[name])

        figures = self.running.figures()
        for name, meaning in ENGINE_COUNTERS.items():
            yield CounterMetricFamily(f"stream_dr_engine_{name}", meaning, value=figures[name])
        for name, meaning in ENGINE_GAUGES.items():
            yield _gauge_metric(f"engine_{name}", meaning, figures[name])
        yield from self._collect_model_gauges()

    def _collect_model_gauges(self) -> Iterable[Metric]:
        # A family is one metric, with a value for each model. A model without a value is left out.
        models = [self._model_values(model) for model in self.directory.models.values()]
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
        """Return a model's description, from which its metrics are read."""
        values = model.describe(self.directory.position)
        scores = self.running.scores(model)
        values |= scores
        values["tested_rows"] = scores.get("tested")
        values["solve_seconds"] = model.solving.seconds
        if model.published is not None:
            values["published_timestamp_seconds"] = model.published.timestamp
        return values


def _gauge_metric(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(f"stream_dr_{name}", description, value=value)


@dataclass
class MetricsMiddleware:
    """Middleware that counts requests and responds to uncaught errors.

    This middleware surrounds the routes, `AccessMiddleware` and `BodyLimitsMiddleware`. So the
    errors of all of them arrive here.
    """

    app: ASGIApp
    metrics: Metrics

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

        # The path of a route is a template such as /models/{name}. So the number of metrics does
        # not grow with the names. Requests that no route matches count as "other".
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(scope["method"], route, str(status)).inc()
        self.metrics.request_seconds.labels(route).observe(time.perf_counter() - started)


@dataclass(frozen=True)
class AppState:
    """State of one application, stored as `app.state.shared`.

    Attributes
    ----------
    settings : Settings
    limits : Limits
        Limits of a batch, from the settings.
    directory : Directory
        The directory that is served, open for writing.
    running : Running
        Engine that learns and publishes.
    metrics : Metrics
    memory : BodyMemory
        Memory of all request bodies.
    stopping : asyncio.Event
        Set on the event loop when the service begins to stop.
    first_ids : set of int
        Ids of the models that were in the directory at the start.
    parsing : Executor
        Pool of the one thread that parses batches to learn. One thread is enough, because batches
        are learned one after the other.
    queries : Executor
        Pool of the threads that project rows.
    slow : Executor
        Pool of the threads that read through the log or wait for a solution.
    figures : callable
        Returns the figures of the dashboard, which are created at the first call.
    """

    settings: Settings
    limits: stream_dr.Limits
    directory: stream_dr.Directory
    running: stream_dr.Running
    metrics: Metrics
    memory: BodyMemory
    stopping: asyncio.Event
    first_ids: set[int]
    parsing: Executor
    queries: Executor
    slow: Executor
    figures: Callable[[], stream_dr.LiveFigures]

    @property
    def warming(self) -> list[str]:
        """Names of models whose functions are still being compiled since the service started."""
        return [m.name for m in self.directory.models.values() if m.status == "warming" and m.id in self.first_ids]

    async def parse_batch(
        self, handle: Callable[..., T], body: bytes, body_format: BodyFormat, idempotency_key: str | None
    ) -> T:
        """Parse a batch, and return the result of `handle`.

        The body is parsed in the one thread that parses all bodies, so that the event loop is free.

        handle: function that receives the batch's draft, such as `Running.submit`.
        body: the rows, in Arrow or JSON format.
        idempotency_key: idempotency key or None.

        Raises a StreamDRError if the batch is refused.
        """

        def parse_and_handle() -> T:
            try:
                names = self.directory.schema.names or ()
                draft = stream_dr.rows_draft(body, body_format, idempotency_key, self.limits, names)
                return handle(draft)
            except StreamDRError as e:
                # Remove the traceback from the error.
                # The frames of the traceback refer to the body, so the body would stay in memory.
                raise remove_stack_frames(e) from None

        return await asyncio.get_running_loop().run_in_executor(self.parsing, parse_and_handle)

    async def finishes_in_time(self, awaitable: Awaitable[object], timeout_seconds: float) -> bool:
        """Wait for `awaitable`, and return True if it finishes.

        If `timeout_seconds` pass or the service stops first, cancel `awaitable` and return False.
        """
        # Whichever of `work` and `stop` is still running at the end is cancelled.
        work = asyncio.ensure_future(awaitable)
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((work, stop), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            return work.done() and not work.cancelled()
        finally:
            work.cancel()
            stop.cancel()


async def _app_state(request: Request) -> AppState:
    state: AppState = request.app.state.shared
    return state


Service = Annotated[AppState, Depends(_app_state)]
"""Type of a route's parameter that receives the state of the application."""


async def refuse_repeated_parameters(request: Request) -> None:
    """Raise ServiceError `invalid_request` if a query parameter is repeated."""
    if len(request.query_params) < len(request.query_params.multi_items()):
        raise ServiceError("invalid_request", "A parameter is given more than once.")
