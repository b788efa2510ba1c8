"""Metrics: what the service counts about itself, in Prometheus' text form; every name starts with stream_dr_.

Counters and histograms are kept here, per route and status; gauges about the log and the models are read when asked for.
The middleware that counts is also the last place an exception can reach: it answers it as a problem and never passes it on.

Why this way: a few dictionaries on the event loop need no lock and no further library.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import problems

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""


class Metrics:
    """The service's own counters; only the event loop writes to them."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.seconds: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self.seconds_sum: dict[str, float] = defaultdict(float)
        self.rows = self.duplicates = self.transformed = self.listeners = 0

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests[method, route, status] += 1
        self.seconds_sum[route] += seconds
        place = next((i for i, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
        self.seconds[route][place] += 1

    def learned(self, receipt: Any) -> None:
        """Count a batch that is durable."""
        self.rows += 0 if receipt.duplicate else receipt.rows
        self.duplicates += receipt.duplicate

    def lines(self) -> Iterator[str]:
        """These counters in Prometheus' text form."""
        yield "# TYPE stream_dr_requests_total counter"
        for (method, route, status), count in sorted(self.requests.items()):
            yield sample("stream_dr_requests_total", count, method=method, route=route, status=status)
        yield "# TYPE stream_dr_request_seconds histogram"
        for route, counts in sorted(self.seconds.items()):
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield sample("stream_dr_request_seconds_bucket", total, route=route, le=bound)
            yield sample("stream_dr_request_seconds_sum", self.seconds_sum[route], route=route)
            yield sample("stream_dr_request_seconds_count", total, route=route)
        for name, value in (("rows_received", self.rows), ("duplicates", self.duplicates)):
            yield from single(f"stream_dr_{name}_total", "counter", value)
        yield from single("stream_dr_rows_transformed_total", "counter", self.transformed)
        yield from single("stream_dr_listeners", "gauge", self.listeners)


def single(name: str, kind: str, value: float) -> Iterator[str]:
    """A metric of one sample, with its type line."""
    yield f"# TYPE {name} {kind}"
    yield sample(name, value)


def sample(name: str, value: float, **labels: Any) -> str:
    """One line: name{labels} value."""
    shown = ",".join(f'{k}="{_escaped(str(v))}"' for k, v in labels.items())
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def memory() -> Iterator[str]:
    """This process's memory from /proc, where there is one; anonymous memory leaves mapped shards out."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    for name, field in (("resident", "VmRSS"), ("anonymous", "RssAnon")):
        if field in fields:
            yield from single(f"stream_dr_{name}_bytes", "gauge", int(fields[field].split()[0]) * 1024)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Observed:
    """Middleware: counts every request, and answers what no handler caught."""

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
        except Exception as error:
            answer = problems.of(error)
            if not status:
                await answer(scope, receive, noting)
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.observe(scope["method"], route, status, time.perf_counter() - started)
