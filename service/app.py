"""The application: one directory kept current, behind the routes.

create_app(directory, settings) is all a test or another server needs; `serve` adds the process around it. All threads of the
service are stated here: the one that parses, two small pools, and the engine's own, which run while the application is up;
routes that only look are short and run in Starlette's threads.
"""

import asyncio
import functools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

import stream_dr
from service import problems, schemas
from service.auth import Access
from service.body_limits import BodyLimits, Held
from service.metrics import Metrics, Observed
from service.routes import jobs, learn, look, models, project, stream
from service.settings import Settings
from service.shared import Ingest, Shared, given_once
from service.warm_up import WarmUp

PARSING, QUERIES, SLOW = 1, 4, 4
"""Threads that parse, that project many rows, and that read through the log or wait for a solution."""


def create_app(directory: stream_dr.Directory, settings: Settings) -> FastAPI:
    """The ASGI application over an open, writable directory; runs its threads while it is up."""
    running = stream_dr.Running(directory, run_settings(settings))
    parsing, queries, slow = (
        ThreadPoolExecutor(threads, f"service-{name}")
        for name, threads in (("parse", PARSING), ("query", QUERIES), ("slow", SLOW))
    )
    held = Held(settings.max_queue_bytes)
    metrics = Metrics(directory, running, held)
    ingest = Ingest(running, limits(settings), parsing)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Threads up, requests, threads down: what was taken is parsed, appended, learned and snapshotted."""
        in_thread = functools.partial(asyncio.get_running_loop().run_in_executor, None)
        await in_thread(running.start)
        yield
        shared.stopping.set()
        await in_thread(parsing.shutdown)
        await in_thread(running.stop, settings.drain_timeout)
        for pool in (queries, slow):
            pool.shutdown(wait=False, cancel_futures=True)
        app.state.drained = True

    shared = Shared(
        settings, limits(settings), directory, running, ingest, metrics, held, asyncio.Event(),
        WarmUp(), queries, slow,
        functools.cache(lambda: stream_dr.LiveFigures(directory, lambda: look.told(directory, running))),
    )  # fmt: skip
    app = FastAPIOffline(
        title="stream_dr",
        version=stream_dr.__version__,
        summary="Supervised projections of a stream, learned as it arrives.",
        lifespan=lifespan,
        responses=schemas.ANY,
        dependencies=[Depends(given_once)],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.shared, app.state.drained = shared, False
    problems.install(app)
    for router in (
        learn.router,
        project.router,
        models.router,
        models.saved_router,
        models.put_router(),
        jobs.router,
        stream.router,
        look.router,
    ):
        app.include_router(router)
    look.install(app)
    _add_middleware(app, shared)
    app.openapi = functools.partial(  # type: ignore[method-assign]  # as FastAPI's documentation has it
        schemas.describe, app, settings.write_token is not None
    )
    return app


def _add_middleware(app: FastAPI, shared: Shared) -> None:
    """What stands around all routes; the last one added is the outermost."""
    settings = shared.settings
    app.add_middleware(BodyLimits, settings=settings, held=shared.held)
    app.add_middleware(Access, settings=settings)
    app.add_middleware(Observed, metrics=shared.metrics)
    if settings.cors_origins:  # outside of Access: browsers ask first, without a token, and pages read errors, too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "PUT", "DELETE"),
            allow_headers=("Authorization", "Content-Encoding", "Idempotency-Key"),
            expose_headers=("Location", "Retry-After"),
        )


def limits(settings: Settings) -> stream_dr.Limits:
    """The library's limits with the settings' figures."""
    return stream_dr.Limits(**_named(stream_dr.Limits, settings))


def run_settings(settings: Settings) -> stream_dr.RunSettings:
    """The engine's settings with the service's figures."""
    policy = stream_dr.PublishPolicy(settings.publish_rows, settings.publish_seconds, settings.publish_idle)
    return stream_dr.RunSettings(publish=policy, **_named(stream_dr.RunSettings, settings))


def _named(kind: type[stream_dr.Limits | stream_dr.RunSettings], settings: Settings) -> dict[str, Any]:
    """The settings that have the name of a field of `kind`."""
    return {name: getattr(settings, name) for name in kind._fields if hasattr(settings, name)}
