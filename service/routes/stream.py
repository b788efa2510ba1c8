"""Stream: what there is (/stream, /events), and how it does (/metrics, /livez, /readyz).

/events sends a line whenever something changed, at most five a second. Health needs no token.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client.exposition import choose_encoder

from service import schemas
from service.examples import EXAMPLES
from service.problems import Problem
from service.shared import Service, Shared

router = APIRouter(tags=["stream"])
BEAT, CATCHING_UP, SILENCE = 0.2, 1.0, 15.0
"""Seconds: between two events at least; until a look at models that have not learned all there is; until an unchanged
stream says that it is alive."""
EVENT = f"event: overview\ndata: {json.dumps(EXAMPLES['Overview'])}\n\n"
METRIC = "# TYPE stream_dr_position gauge\nstream_dr_position 812.0\n"


def _of(media: str, example: str) -> schemas.Answers:
    """What FastAPI is told of a route that answers in text."""
    return {200: {"content": {media: {"schema": {"type": "string"}, "example": example}}}}


@router.get("/stream", response_model=schemas.StreamState)
def stream(shared: Service) -> dict[str, Any]:
    """Position, rows, schema, labels and target kind of the stream."""
    directory = shared.directory
    told = {"position": directory.position, "rows": directory.rows, "models": list(directory.models)}
    return told | directory.schema.describe()


@router.get("/events", response_class=StreamingResponse, responses=_of("text/event-stream", EVENT))
async def events(shared: Service) -> Response:
    """Server-sent events: position, rows, lag and each model's figures, whenever they change.

    Each is called `overview`, and its data is JSON of the form Overview.
    """
    if shared.metrics.listeners >= shared.settings.max_listeners:
        raise Problem("overloaded", "Too many /events connections are open; try again later.", {"Retry-After": "5"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(shared), 200, headers, "text/event-stream")


@router.get("/metrics", response_class=PlainTextResponse, responses=_of("text/plain", METRIC))
def metrics(request: Request, shared: Service) -> Response:
    """Prometheus metrics, in its text form or as OpenMetrics, by Accept."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(shared.metrics.registry), media_type=media_type)


@router.get("/livez", response_model_exclude_none=True)
async def livez() -> schemas.Health:
    """200 while the process answers."""
    return schemas.Health(status="alive")


@router.get("/readyz", response_model_exclude_none=True)
def readyz(shared: Service) -> schemas.Health:
    """200 when batches can be taken, with the models that fail, or cannot be published or snapshotted; else 503, why."""
    health = shared.running.health()
    free, needed = health["free_bytes"], max(health["min_free_bytes"], 1)
    if shared.stopping.is_set():
        raise Problem("not_ready", "The service is stopping.")
    if free < needed:
        detail = f"{free:,} bytes are free on the disk, {needed:,} are needed (min_free_bytes). Make room on it."
        raise Problem("not_ready", detail, free_bytes=free, needed=needed)
    if health["reason"] is not None:
        raise Problem("not_ready", health["reason"])
    if shared.warm_up.reason is not None:
        raise Problem("not_ready", shared.warm_up.reason)

    details = [f"no snapshot of {name} could be written: {why}" for name, why in health["snapshot_errors"].items()]
    hindered = [name for name, model in shared.directory.models.items() if model.state.startswith("failed")]
    if hindered:
        details.append(f"failed, or not to be published: {', '.join(hindered)} (GET /models has why)")
    return schemas.Health(status="ready", detail="; ".join(details) or None)


async def _changes(shared: Shared) -> AsyncIterator[str]:
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def told(_: object) -> None:
        if not changed.is_set():
            loop.call_soon_threadsafe(changed.set)

    end = shared.running.listen(told)
    shared.metrics.listeners += 1
    said = None
    try:
        while not shared.stopping.is_set():
            changed.clear()
            now = schemas.Overview.of(shared.directory)
            yield ": alive\n\n" if now == said else f"event: overview\ndata: {now.model_dump_json()}\n\n"
            said = now
            await asyncio.sleep(BEAT)
            learning = any(model.lag and model.state != "failed" for model in now.models.values())
            await shared.done(changed.wait(), CATCHING_UP if learning else SILENCE)
    finally:
        shared.metrics.listeners -= 1
        end()
