"""Routes of the stream's state and of the service's health.

The state is at /stream and /events. The health is at /metrics, /livez and /readyz.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client.exposition import choose_encoder

from service import schemas
from service.problems import ServiceError
from service.schemas import JsonDict
from service.shared import AppState, Service
from stream_dr.errors import StreamDRError

router = APIRouter(tags=["stream"])
MIN_EVENT_INTERVAL = 0.2
"""Minimum time between two server-sent events of /events, in seconds."""

MAX_LEARNING_INTERVAL = 1.0
"""Maximum time between two events while a model is behind the log, in seconds."""

KEEP_ALIVE_INTERVAL = 15.0
"""Time without a change after which /events sends a comment, in seconds."""

EVENT_EXAMPLE = f"event: overview\ndata: {json.dumps(schemas.EXAMPLES['Overview'])}\n\n"
METRICS_EXAMPLE = "# TYPE stream_dr_position gauge\nstream_dr_position 812.0\n"


def _text_response_schema(content_type: str, example: str) -> schemas.ResponsesByStatus:
    """Return the OpenAPI description of a text response.

    content_type: media type of the text.
    example: example of the text.
    """
    return {200: {"content": {content_type: {"schema": {"type": "string"}, "example": example}}}}


@router.get("/stream", response_model=schemas.StreamState)
def stream(shared: Service) -> JsonDict:
    """Return the stream's position, rows, schema, labels and target kind."""
    directory = shared.directory
    state = {"position": directory.position, "rows": directory.rows, "models": list(directory.models)}
    return state | directory.schema.describe()


@router.get(
    "/events", response_class=StreamingResponse, responses=_text_response_schema("text/event-stream", EVENT_EXAMPLE)
)
async def events(shared: Service) -> Response:
    """Send position, rows and model states when they change.

    The server-sent events are named `overview`. Their data is JSON with the schema Overview. At
    most five events are sent per second.
    """
    if shared.metrics.listeners >= shared.settings.max_listeners:
        detail = "Too many /events connections are open; try again later."
        raise ServiceError("overloaded", detail, {"Retry-After": "5"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_overview_events(shared), 200, headers, "text/event-stream")


@router.get(
    "/metrics", response_class=PlainTextResponse, responses=_text_response_schema("text/plain", METRICS_EXAMPLE)
)
def metrics(request: Request, shared: Service) -> Response:
    """Return the metrics for Prometheus.

    The format is Prometheus's text format, or OpenMetrics if the Accept header asks for it.
    """
    shared.metrics.ready.set(_is_ready(shared))
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(shared.metrics.registry), media_type=media_type)


@router.head("/livez", include_in_schema=False)
@router.get("/livez", response_model_exclude_none=True)
async def livez() -> schemas.Health:
    """Return 200 while the process answers."""
    return schemas.Health(status="alive")


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model_exclude_none=True)
def readyz(shared: Service) -> schemas.Health:
    """Return 200 if the service is ready, otherwise 503.

    The response with 503 has the reason. `detail` lists models that have failed or cannot be
    published or snapshotted, and missing files of old rows.
    """
    health = _check_ready(shared)
    details = [f"no snapshot of {name} could be written: {why}" for name, why in health["snapshot_errors"].items()]
    details += [f"{path} is missing: restore it from a copy" for path in shared.directory.log.missing_files()]
    failed = [name for name, model in shared.directory.models.items() if model.shown_status.startswith("failed")]
    if failed:
        details.append(f"failed, or not to be published: {', '.join(failed)} (GET /models has why)")
    return schemas.Health(status="ready", detail="; ".join(details) or None)


def _is_ready(shared: AppState) -> bool:
    try:
        _check_ready(shared)
    except (ServiceError, StreamDRError):
        return False
    return True


def _check_ready(shared: AppState) -> JsonDict:
    """Return the engine's health, or raise an error if the service is not ready."""
    if shared.stopping.is_set():
        raise ServiceError("not_ready", "The service is stopping.")

    shared.directory.log.check_folder_not_replaced()
    health = shared.running.health()
    free = health["free_bytes"]
    needed = max(health["min_free_bytes"], 1)
    if free < needed:
        detail = f"{free:,} bytes are free on the disk, {needed:,} are needed (min_free_bytes). Make room on it."
        raise ServiceError("not_ready", detail, free_bytes=free, needed=needed)
    if health["reason"] is not None:
        raise ServiceError("not_ready", health["reason"])

    warming = shared.warming
    if warming:
        raise ServiceError(
            "not_ready", f"The service starts, compiling for {', '.join(warming)}: once on this machine."
        )
    return health


async def _overview_events(app_state: AppState) -> AsyncIterator[str]:
    """Yield a server-sent event when the directory's overview changes.

    If nothing changes for KEEP_ALIVE_INTERVAL seconds, yield a comment, so that the connection
    stays open. While models learn, the interval is MAX_LEARNING_INTERVAL.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    # The engine calls `on_change` in its own threads, but only the event loop may set `changed`.
    def on_change(_: object) -> None:
        if not changed.is_set():
            loop.call_soon_threadsafe(changed.set)

    stop_listening = app_state.running.listen(on_change)
    app_state.metrics.listeners += 1
    previous = None

    try:
        while not app_state.stopping.is_set():
            changed.clear()
            overview = await asyncio.to_thread(schemas.Overview.from_running, app_state.running)
            yield ": alive\n\n" if overview == previous else f"event: overview\ndata: {overview.model_dump_json()}\n\n"
            previous = overview

            await asyncio.sleep(MIN_EVENT_INTERVAL)
            learning = any(model.lag and model.state != "failed" for model in overview.models.values())
            await app_state.finish_before_timeout_or_stop(
                changed.wait(), MAX_LEARNING_INTERVAL if learning else KEEP_ALIVE_INTERVAL
            )
    finally:
        app_state.metrics.listeners -= 1
        stop_listening()
