"""Stream: what there is (/stream, /events, the dashboard), and how it does (/metrics, /livez, /readyz).

/events sends a line whenever something changed, at most five a second. Health needs no token; the dashboard's page holds no
data, so it needs none either, and asks for one itself.

Why this way: a browser cannot send a token with a page or an EventSource, so the page fetches with one.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse

from service import auth, documents, metrics, wire
from service.problems import Problem

router = APIRouter(tags=["stream"])
reads = [Depends(auth.reads)]
PAGE = Path(__file__).parent.parent / "dashboard" / "index.html"
BEAT, SILENCE = 0.2, 15.0
"""Seconds between looks for a change; seconds after which an unchanged stream says it is alive."""


@router.get("/stream", dependencies=reads, responses=documents.STREAM_ANSWERS)
def stream(request: Request) -> Response:
    """Position, rows, schema, labels and target kind of the stream."""
    directory = request.app.state.directory
    told = {"position": directory.position, "rows": directory.rows, "models": list(directory.models)}
    return wire.json_response(told | directory.schema.describe())


@router.get("/events", dependencies=reads, response_class=StreamingResponse)
async def events(request: Request) -> Response:
    """Server-sent events: position, rows, lag and each model's figures, whenever they change."""
    state = request.app.state
    if state.metrics.listeners >= state.settings.max_listeners:
        raise Problem("overloaded", "Too many /events connections are open; try again later.", {"Retry-After": "5"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(state), 200, headers, wire.EVENT_STREAM)


@router.get("/metrics", dependencies=reads, response_class=PlainTextResponse)
def figures(request: Request) -> Response:
    """Prometheus metrics."""
    text = "\n".join([*request.app.state.metrics.lines(), *_gauges(request.app.state), *metrics.memory()])
    return Response(text + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/livez", responses=documents.HEALTH_ANSWERS)
async def livez() -> Response:
    """200 while the process answers."""
    return wire.json_response({"status": "alive"})


@router.get("/readyz", responses=documents.HEALTH_ANSWERS)
def readyz(request: Request) -> Response:
    """200 when batches can be taken; else 503 with the reason."""
    reason = "The service is stopping." if request.app.state.stopping.is_set() else request.app.state.running.ready()
    if reason is not None:
        raise Problem("not_ready", reason)
    return wire.json_response({"status": "ready"})


@router.get("/", response_class=HTMLResponse)
def dashboard() -> Response:
    """The dashboard."""
    csp = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return HTMLResponse(PAGE.read_bytes(), headers={"Content-Security-Policy": csp, "X-Frame-Options": "DENY"})


def overview(state: Any) -> dict[str, Any]:
    """What /events tells."""
    directory = state.directory
    last = directory.position
    models = {name: _figures(model, last) for name, model in directory.models.items()}
    return {"position": last, "rows": directory.rows, "models": models}


def _figures(model: Any, last: int) -> dict[str, Any]:
    published = model.published
    return {
        "estimator": model.spec.estimator,
        "state": model.status,
        "rows": model.rows,
        "lag": max(0, last - model.position),
        "version": published.version if published else 0,
        "components": published.projection.n_components if published else 0,
        "solution": published.projection.solution if published else None,
    }


async def _changes(state: Any) -> AsyncIterator[bytes]:
    state.metrics.listeners += 1
    said, quiet = b"", 0.0
    try:
        while not state.stopping.is_set():
            now = orjson.dumps(await state.in_thread(overview, state))
            quiet += BEAT
            if now != said:
                yield b"event: overview\ndata: " + now + b"\n\n"
                said, quiet = now, 0.0
            elif quiet >= SILENCE:
                yield b": alive\n\n"
                quiet = 0.0
            await asyncio.sleep(BEAT)
    finally:
        state.metrics.listeners -= 1


def _gauges(state: Any) -> Iterator[str]:
    seen = overview(state)
    yield from metrics.single("stream_dr_position", "gauge", seen["position"])
    yield from metrics.single("stream_dr_rows", "gauge", seen["rows"])
    yield from metrics.single("stream_dr_body_bytes", "gauge", state.bounds.bytes)
    for name, value in state.running.figures().items():
        yield from metrics.single(f"stream_dr_engine_{name}", "gauge", value)
    for figure in ("rows", "lag", "version", "components"):
        yield f"# TYPE stream_dr_model_{figure} gauge"
        for name, model in seen["models"].items():
            yield metrics.sample(f"stream_dr_model_{figure}", model[figure], model=name, estimator=model["estimator"])
    yield "# TYPE stream_dr_model_failed gauge"
    for name, model in seen["models"].items():
        yield metrics.sample("stream_dr_model_failed", int(model["state"] == "failed"), model=name)
