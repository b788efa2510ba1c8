"""Look: the dashboard at GET /, and what it shows (GET /figures).

The page and its files hold no data and need no token; the page asks for one itself, and keeps it for the tab. It asks
again every second for what has changed: a browser opens six connections to a host, so tabs that each held one open
would soon wait.
"""

import asyncio
import importlib.util
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.staticfiles import StaticFiles

import stream_dr
from service import media, schemas
from service.auth import may_write
from service.forms import FORMS, forms
from service.shared import Service

router = APIRouter(tags=["stream"])
PAGES = Path(__file__).parent.parent / "dashboard"
JOBS = 10
"""Jobs that are shown, the newest."""

MOST_LABELS = 50
"""Labels of a model that are shown with their rows."""

POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Scripts come from here alone, and from no text of the page's; plotly's WebGL makes functions of strings."""

PAGE: schemas.Answers = {200: {"content": {"text/html": {"schema": {"type": "string"}, "example": "<!doctype html>"}}}}
FIGURES: schemas.Answers = {
    200: {"content": {media.JSON: {"schema": {"type": "object", "additionalProperties": True}}}}
}


@router.get("/", response_class=FileResponse, responses=PAGE)
def dashboard() -> Response:
    """The dashboard."""
    return FileResponse(PAGES / "index.html", media_type="text/html", headers=POLICY)


@router.get("/figures", response_class=Response, responses=FIGURES)
async def figures(request: Request, shared: Service, query: Annotated[schemas.FiguresQuery, Query()]) -> Response:
    """What the dashboard shows: the stream, its models, jobs, and the figures of one model that the asker has not got."""
    rights = {
        "may_write": may_write(shared.settings, request.headers),
        "guarded": shared.settings.write_token is not None,
    }

    def drawn() -> bytes:
        wanted = stream_dr.FigureOptions(query.rows, query.dimensions, query.component)
        have = query.have.split(",") if query.have else []
        return shared.figures().draw(query.model, wanted, have, rights)

    body = await asyncio.get_running_loop().run_in_executor(shared.queries, drawn)
    return Response(body, media_type=media.JSON, headers={"Cache-Control": "no-store"})


def install(app: FastAPI) -> None:
    """Serve the page's files, the parameters of its forms, and plotly's script as its package has it."""
    plotly = importlib.util.find_spec("plotly")
    assert plotly is not None
    assert plotly.submodule_search_locations is not None
    script, told = Path(plotly.submodule_search_locations[0]) / "package_data" / "plotly.min.js", forms()

    @app.get("/dashboard/plotly.js", include_in_schema=False)
    def plotly_script() -> Response:
        return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    @app.get(f"/dashboard/{FORMS}", include_in_schema=False)
    def parameters() -> Response:
        return JSONResponse(told, headers={"Cache-Control": "no-cache"})

    app.mount("/dashboard", StaticFiles(directory=PAGES))


def told(directory: stream_dr.Directory, running: stream_dr.Running) -> dict[str, Any]:
    """Return what the page shows in words and numbers."""
    last, schema = directory.position, directory.schema
    models = {}
    for name, model in directory.models.items():
        facts = schemas.ModelState(**model.describe(last)).model_dump(exclude={"eigenvalues"})
        models[name] = facts | _labels(facts) | {"refines": running.refinable(model)}
        models[name] |= {key: value for key, value in running.scores(model).items() if key != "curve"}
    stream = {"position": last, "rows": directory.rows, "layout": schema.layout, "features": schema.features}
    return {
        "stream": stream | {"target_kind": schema.target_kind, "labels": len(schema.labels)},
        "models": models,
        "jobs": [job.describe() for job in running.jobs[-JOBS:]],
        "health": running.health(),
        "figures_of_engine": running.figures(),
    }


def _labels(facts: dict[str, Any]) -> dict[str, Any]:
    """Return [label, number of rows] of the labels with most rows, and of those that wait for more.

    None of either where the method does not count rows. At most MOST_LABELS each, since the page asks every two seconds.
    """
    rows = dict(zip(facts["classes"], facts["class_rows"] or (), strict=False))
    learned = sorted(rows.items(), key=lambda item: -item[1])
    waiting = [(label, rows[label]) for label in facts["classes_waiting"] if label in rows]
    shown = {"class_rows": learned, "classes_waiting": waiting}
    named = {key: [[str(label), n] for label, n in pairs[:MOST_LABELS]] for key, pairs in shown.items()}
    return named | {"classes": len(facts["classes"])}
