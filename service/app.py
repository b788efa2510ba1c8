"""ASGI application over one directory.

All threads of the service start here:

- One thread parses batches.
- One pool projects rows.
- One pool reads through the log or waits for a solution.
- The engine, which learns and publishes, has threads of its own.

Routes that only read are short and run in Starlette's threads. `serve.py` runs the application.
"""

import asyncio
import functools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

import stream_dr
from service import problems, schemas
from service.guards import AccessMiddleware, BodyLimitsMiddleware, BodyMemory
from service.routes import models, rows, stream
from service.schemas import JsonDict
from service.settings import Settings
from service.shared import AppState, Metrics, MetricsMiddleware, refuse_repeated_parameters

PARSING, QUERIES, SLOW = 1, 4, 4
"""Numbers of threads in the three pools.

- PARSING: threads that parse batches.
- QUERIES: threads that project many rows.
- SLOW: threads that read through the log or wait for a solution.
"""


def create_app(directory: stream_dr.Directory, settings: Settings) -> FastAPI:
    """Return the ASGI application that serves an open directory.

    The directory must be open for writing. The threads of the application start at the start of
    the ASGI lifespan, and stop at the end of the lifespan.
    """
    shared = _make_state(directory, settings)
    app = FastAPIOffline(
        title="stream_dr",
        version=stream_dr.__version__,
        summary="Supervised projections of a stream, learned as it arrives.",
        lifespan=_lifespan,
        exception_handlers=problems.ERROR_HANDLERS,
        responses=schemas.COMMON_PROBLEMS,
        dependencies=[Depends(refuse_repeated_parameters)],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.shared = shared
    # True after the engine has stopped.
    app.state.drained = False
    _add_routes(app)
    _add_middleware(app, shared)

    # /openapi.json calls `app.openapi()`. From here on, it returns our document.
    document = functools.partial(schemas.openapi_document, app, settings.write_token is not None)
    app.openapi = document  # type: ignore[method-assign]  # as FastAPI's documentation has it
    return app


def _make_state(directory: stream_dr.Directory, settings: Settings) -> AppState:
    running = stream_dr.Running(directory, run_settings(settings))
    memory = BodyMemory(settings.max_queue_bytes)

    # The figures are created when the dashboard first asks for them, and then kept.
    @functools.cache
    def figures() -> stream_dr.LiveFigures:
        status = functools.partial(stream.dashboard_status, directory, running)
        return stream_dr.LiveFigures(directory, status)

    return AppState(
        settings=settings,
        limits=limits(settings),
        directory=directory,
        running=running,
        metrics=Metrics(directory, running, memory),
        memory=memory,
        stopping=asyncio.Event(),
        first_ids={model.id for model in directory.models.values()},
        parsing=ThreadPoolExecutor(PARSING, "service-parse"),
        queries=ThreadPoolExecutor(QUERIES, "service-query"),
        slow=ThreadPoolExecutor(SLOW, "service-slow"),
        figures=figures,
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the engine, and stop all threads at the end.

    Before the engine stops, all accepted batches are parsed, appended and learned, and the models
    are snapshotted.
    """
    shared: AppState = app.state.shared
    await asyncio.to_thread(shared.running.start)
    yield

    # Stop the parsing thread before the engine, because the thread submits batches to it.
    shared.stopping.set()
    await asyncio.to_thread(shared.parsing.shutdown)
    await asyncio.to_thread(shared.running.stop, shared.settings.drain_timeout)
    for pool in (shared.queries, shared.slow):
        pool.shutdown(wait=False, cancel_futures=True)
    app.state.drained = True


def _add_routes(app: FastAPI) -> None:
    # Routers are matched in this order.
    # `saved_router` must precede `make_put_router`: both have a route PUT /models/{name}.
    # The route of `saved_router` matches fewer requests.
    routers = [rows.learn_router, rows.query_router, models.router, models.saved_router, models.make_put_router()]
    for router in (*routers, models.jobs_router, stream.router):
        app.include_router(router)
    stream.add_dashboard_routes(app)


def _add_middleware(app: FastAPI, shared: AppState) -> None:
    """Add the middleware around all routes, innermost first."""
    settings = shared.settings
    app.add_middleware(BodyLimitsMiddleware, settings=settings, memory=shared.memory)
    app.add_middleware(AccessMiddleware, settings=settings)
    app.add_middleware(MetricsMiddleware, metrics=shared.metrics)

    # Add the CORS middleware last, so that CORS runs before AccessMiddleware.
    # CORS answers a browser's preflight request, which has no token and would be refused.
    # CORS also adds headers to refusals, so that pages can read why a request was refused.
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "PUT", "DELETE"),
            allow_headers=("Authorization", "Content-Encoding", "Idempotency-Key"),
            expose_headers=("Location", "Retry-After"),
        )


def limits(settings: Settings) -> stream_dr.Limits:
    """Return the library's limits with the values of the settings."""
    return stream_dr.Limits(**_matching_settings(stream_dr.Limits, settings))


def run_settings(settings: Settings) -> stream_dr.RunSettings:
    """Return the engine's RunSettings, taken from the service's settings."""
    policy = stream_dr.PublishPolicy(settings.publish_rows, settings.publish_seconds, settings.publish_idle)
    return stream_dr.RunSettings(publish=policy, **_matching_settings(stream_dr.RunSettings, settings))


def _matching_settings(target_class: type[stream_dr.Limits | stream_dr.RunSettings], settings: Settings) -> JsonDict:
    """Return the service's settings that are fields of `target_class`, by name."""
    return {name: getattr(settings, name) for name in target_class._fields if hasattr(settings, name)}
