"""Routes of the stream's state, of the service's health and of the dashboard.

The state is at /stream and /events. The health is at /metrics, /livez and /readyz. The dashboard's
page is at /, and its data are at /figures. The page and its files hold no data, so they need no
token. The page asks the user for a token and stores it until the browser's tab is closed.
"""

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client.exposition import choose_encoder
from starlette.staticfiles import StaticFiles

import stream_dr
from service import schemas
from service.guards import JSON, may_write
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
    """Return the OpenAPI description of a text response."""
    text = {"schema": {"type": "string"}, "example": example}
    return {200: {"content": {content_type: text}}}


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
    ready = True
    try:
        _check_ready(shared)
    except (ServiceError, StreamDRError):
        ready = False
    shared.metrics.ready.set(ready)
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


def _check_ready(shared: AppState) -> JsonDict:
    """Return the engine's health as a dict.

    Raises an error, which says the reason, if the service is not ready.
    """
    if shared.stopping.is_set():
        raise ServiceError("not_ready", "The service is stopping.")

    shared.directory.log.check_folder_not_replaced()
    health = shared.running.health()
    free = health["free_bytes"]
    # The service is not ready on a full disk, even if the setting min_free_bytes is 0.
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
    stays open. While models learn, look for changes every MAX_LEARNING_INTERVAL seconds.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    # The engine calls `on_change` in its own threads, but only the event loop may set `changed`.
    def on_change(_: object) -> None:
        if not changed.is_set():
            loop.call_soon_threadsafe(changed.set)

    # `listen` returns a function that removes `on_change` again.
    stop_listening = app_state.running.listen(on_change)
    app_state.metrics.listeners += 1
    previous = None

    try:
        while not app_state.stopping.is_set():
            changed.clear()
            overview = await asyncio.to_thread(schemas.Overview.from_running, app_state.running)
            if overview == previous:
                yield ": alive\n\n"
            else:
                yield f"event: overview\ndata: {overview.model_dump_json()}\n\n"
            previous = overview

            await asyncio.sleep(MIN_EVENT_INTERVAL)
            interval = KEEP_ALIVE_INTERVAL
            if any(model.lag and model.state != "failed" for model in overview.models.values()):
                interval = MAX_LEARNING_INTERVAL
            await app_state.finishes_in_time(changed.wait(), interval)
    finally:
        app_state.metrics.listeners -= 1
        stop_listening()


PAGES = Path(__file__).parent.parent / "dashboard"
MAX_JOBS = 10
"""Number of newest jobs that the page shows."""

MAX_LABELS = 50
"""Maximum number of labels of a model that the page shows with their numbers of rows."""

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Security headers of the page.

Scripts may come from the service's files only. 'unsafe-eval' is needed because plotly's WebGL
plots compile functions from strings.
"""

FIGURES_RESPONSES: schemas.ResponsesByStatus = {
    200: {"content": {JSON: {"schema": {"type": "object", "additionalProperties": True}}}}
}


@router.get("/", response_class=FileResponse, responses=_text_response_schema("text/html", "<!doctype html>"))
def dashboard() -> Response:
    """Return the page of the dashboard."""
    return FileResponse(PAGES / "index.html", media_type="text/html", headers=PAGE_HEADERS)


@router.get("/figures", response_class=Response, responses=FIGURES_RESPONSES)
async def figures(request: Request, shared: Service, query: Annotated[schemas.FiguresQuery, Query()]) -> Response:
    """Return the data of the dashboard.

    The response has the state of the stream, all models, the jobs, and the figures of one model.
    If the tag of a figure is in `have`, only the tag is returned.
    """
    # The page calls this route every two seconds. It does not keep a stream of events open,
    # because a browser opens at most six connections to a host: six tabs would use them all.
    guarded = shared.settings.write_token is not None
    rights = {"may_write": may_write(shared.settings, request.headers), "guarded": guarded}

    def draw_model_figures() -> bytes:
        options = stream_dr.FigureOptions(query.rows, query.dimensions, query.component)
        have = []
        if query.have:
            have = query.have.split(",")
        return shared.figures().draw_as_page_json(query.model, options, have, rights)

    body = await asyncio.get_running_loop().run_in_executor(shared.queries, draw_model_figures)
    return Response(body, media_type=JSON, headers={"Cache-Control": "no-store"})


def add_dashboard_routes(app: FastAPI) -> None:
    """Add the routes that the page of the dashboard needs.

    - /dashboard/plotly.js: the script of plotly.
    - /dashboard/forms.json: the parameters of each estimator, for the forms of the page.
    - /dashboard/…: the files of the page.
    """
    plotly = importlib.util.find_spec("plotly")
    assert plotly is not None
    assert plotly.submodule_search_locations is not None
    script = Path(plotly.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    parameters = describe_estimators()

    @app.get("/dashboard/plotly.js", include_in_schema=False)
    def plotly_script() -> Response:
        return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    @app.get("/dashboard/forms.json", include_in_schema=False)
    def form_parameters() -> Response:
        return JSONResponse(parameters, headers={"Cache-Control": "no-cache"})

    app.mount("/dashboard", StaticFiles(directory=PAGES))


def describe_estimators() -> JsonDict:
    """Return a description of each estimator, by the estimator's key.

    A description has these fields:

    - `about`: one sentence about the estimator.
    - `refines`: true if the estimator can be refined.
    - `params`: list of {"name", "kind", "choices", "default"}. The kind is "integer", "number",
      "boolean", "choice", or "json" for any other type.
    """
    described = {}
    for key, kind in stream_dr.ESTIMATORS.items():
        first_line, _, _ = (kind.__doc__ or "").strip().partition("\n")
        # References to papers are in brackets.
        about, _, _ = first_line.partition(" [")
        params = []
        for name, hint, default in stream_dr.parameter_types(kind):
            params.append({"name": name, "default": default} | _form_field_kind(hint))
        refines = getattr(kind, "refines", False)
        described[key] = {"about": about, "refines": refines, "params": params}
    return described


def _form_field_kind(type_hint: Any) -> JsonDict:
    """Return the form field in which a user of the dashboard edits a parameter.

    type_hint: type of the parameter. For `int`, the result is {"kind": "integer"}. For a Literal,
        it is {"kind": "choice", "choices": [the values]}.
    """
    if get_origin(type_hint) is Literal:
        return {"kind": "choice", "choices": list(get_args(type_hint))}
    # `plain` has the alternatives of a union such as `int | None`, without None.
    kinds = (type_hint,)
    if get_origin(type_hint) in (Union, UnionType):
        kinds = get_args(type_hint)
    plain = [kind for kind in kinds if kind is not type(None)]
    if plain == [bool]:
        return {"kind": "boolean"}
    if plain == [int]:
        return {"kind": "integer"}
    if plain and set(plain) <= {int, float}:
        return {"kind": "number"}
    return {"kind": "json"}


def dashboard_status(directory: stream_dr.Directory, running: stream_dr.Running) -> JsonDict:
    """Return the dashboard's data on stream, models, jobs and engine."""
    position = directory.position
    schema = directory.schema
    stream = {"position": position, "rows": directory.rows, "layout": schema.layout, "features": schema.features}
    stream |= {"target_kind": schema.target_kind, "labels": len(schema.labels)}

    models = {}
    for name, model in directory.models.items():
        state = schemas.ModelState(**model.describe(position), scores=None)
        # The page requests this response every two seconds, so leave out long fields.
        fields = state.model_dump(exclude={"eigenvalues", "scores"})
        fields |= _label_counts(state)
        fields["refines"] = running.can_refine(model)
        fields |= running.scores(model)
        fields.pop("curve", None)
        models[name] = fields

    return {
        "stream": stream,
        "models": models,
        "jobs": [job.describe() for job in running.jobs[-MAX_JOBS:]],
        "health": running.health(),
        "figures_of_engine": running.figures(),
    }


def _label_counts(model: schemas.ModelState) -> JsonDict:
    """Return three fields in which the page shows label counts.

    - `class_rows`: pairs [label, number of rows] of all labels, most frequent first.
    - `classes_waiting`: those pairs whose labels have too few rows so far to be classes.
    - `classes`: number of all labels.

    `class_rows` and `classes_waiting` are empty if the model's method does not count rows.
    """
    # If the method does not count rows, `model.class_rows` is None and `rows` stays empty.
    rows = dict(zip(model.classes, model.class_rows or (), strict=False))
    labels = sorted(rows, key=lambda label: -rows[label])
    waiting = [label for label in model.classes_waiting if label in rows]

    # The page requests this response every two seconds, so limit the length of the lists.
    class_rows = [[str(label), rows[label]] for label in labels[:MAX_LABELS]]
    waiting_rows = [[str(label), rows[label]] for label in waiting[:MAX_LABELS]]
    return {"class_rows": class_rows, "classes_waiting": waiting_rows, "classes": len(model.classes)}
