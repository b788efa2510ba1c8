"""The application: one directory kept current, behind the routes.

Shared by all requests and set once: the directory, the threads that run it, the counters, the thread that parses large
batches, and two small pools, one for projecting, one for requests that wait for their models.

Why this way: create_app(directory, settings) is all a test or another server needs; `serve` adds the process around it.
"""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

import stream_dr
from service import documents, openapi, problems, routes
from service.bodies import Bodies, Bounds
from service.connection import LEFT
from service.intake import Intake
from service.metrics import Metrics, Observed
from service.settings import Settings

QUERIES, WAITERS = 4, 64
"""Threads that project; requests that may wait for their models at once."""


def create_app(directory: Any, settings: Settings) -> FastAPI:
    """The ASGI application over an open, writable stream_dr.Directory; runs its threads while it is up."""
    app = FastAPIOffline(
        title="stream_dr",
        version=stream_dr.__version__,
        summary="Supervised projections of a stream, learned as it arrives.",
        lifespan=_lifespan,
        responses=documents.ANY_ANSWERS,
    )
    state = app.state
    state.settings, state.directory, state.limits = settings, directory, limits(settings)
    state.running = stream_dr.Running(directory, run_settings(settings))
    state.intake = Intake(state.running, state.limits)
    state.metrics = Metrics()
    state.stopping = threading.Event()
    problems.install(app)
    routes.install(app)
    state.bounds = Bounds(settings)
    app.add_middleware(Bodies, bounds=state.bounds)
    app.add_middleware(Observed, metrics=state.metrics)
    app.openapi = functools.partial(openapi.document, app)  # type: ignore[method-assign]
    return app


def limits(settings: Settings) -> Any:
    """stream_dr.Limits with the settings' figures."""
    return stream_dr.Limits(**_named(stream_dr.Limits, settings))


def run_settings(settings: Settings) -> Any:
    """stream_dr.RunSettings with the settings' figures."""
    policy = stream_dr.PublishPolicy(settings.publish_rows, settings.publish_seconds, settings.publish_idle)
    return stream_dr.RunSettings(publish=policy, **_named(stream_dr.RunSettings, settings))


def _named(kind: Any, settings: Settings) -> dict[str, Any]:
    """The settings that have the name of a field of `kind`."""
    return {name: getattr(settings, name) for name in kind._fields if hasattr(settings, name)}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Threads up, requests, threads down: drain and snapshot."""
    state = app.state
    loop = asyncio.get_running_loop()
    queries, waiters = ThreadPoolExecutor(QUERIES, "service-query"), ThreadPoolExecutor(WAITERS, "service-wait")
    looking = ThreadPoolExecutor(1, "service-look-up")  # through the whole log, while queries go on
    state.in_thread, state.waiting, state.looking_up = (_runner(loop, pool) for pool in (queries, waiters, looking))
    await loop.run_in_executor(None, state.running.start)
    state.intake.start()
    try:
        yield
    finally:
        state.stopping.set()
        await state.intake.settled(LEFT)
        await loop.run_in_executor(None, state.running.stop, state.settings.drain_timeout)
        state.intake.stop()
        for pool in (queries, waiters, looking):
            pool.shutdown(wait=False)


def _runner(loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> Callable[..., Any]:
    def run(function: Callable[..., Any], *args: Any) -> Any:
        return loop.run_in_executor(pool, function, *args)

    return run
