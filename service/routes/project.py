"""Project: rows through a model's published projection (GET and POST /transform).

The published projection is taken by reference: a query never waits for learning, and all rows of one answer come from one
version. One row is projected at once, many in a thread.

The one-row route reads its query itself: FastAPI's reading of four parameters takes longer than projecting the row.

Why this way: under full ingest a query costs what it costs alone.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

import stream_dr
from service import auth, documents, wire
from service.problems import Problem

router = APIRouter(tags=["project"])


@router.get("/transform", openapi_extra=documents.ONE_ROW, responses=documents.TRANSFORM_ANSWERS)
async def transform_one(request: Request) -> Response:
    """Project one row: ?model=lda&x=0.1,0.2 or ?model=lda&indices=3,17&values=0.5,1.2."""
    return one_row(request.app.state, request.headers, request.scope["query_string"])


def one_row(state: Any, headers: Mapping[str, str], given: bytes) -> Response:
    """The answer to a query. Raises Problem, and what stream_dr.transform raises."""
    auth.check(state.settings, headers, "read")
    state.intake.give_way()
    query = wire.query(given, "model", "x", "indices", "values")
    model = query.get("model")
    if model is None:
        raise Problem("invalid_request", "Say which model: ?model=lda&x=0.1,0.2.")
    row = wire.one_row(query.get("x"), query.get("indices"), query.get("values"))
    answer = stream_dr.transform(state.directory.model(model), row, state.directory.schema)
    state.metrics.transformed += 1
    told = answer._asdict()
    shown = ("model", "version", "position", "solution", "z") + (("unseen",) if answer.unseen else ())
    return wire.json_response({k: told[k] for k in shown})


@router.post(
    "/transform",
    dependencies=[Depends(auth.reads)],
    openapi_extra=documents.ROWS_BODY,
    responses=documents.TRANSFORM_ANSWERS,
)
async def transform_many(request: Request, model: Annotated[str, Query(description="the model's name")]) -> Response:
    """Project many rows, the same rows as /partial_fit takes; targets are ignored, and no rows give none."""
    state = request.app.state
    state.intake.give_way()
    wire.query(request.scope["query_string"], "model")
    media, accept = wire.media(request.headers), wire.accepted(request, (wire.JSON, wire.ARROW_STREAM))
    live = state.directory.model(model)
    body = await wire.body(request)
    rows, response = await state.in_thread(_project, state, live, body, media, accept)
    state.metrics.transformed += rows
    return response


def _project(state: Any, live: Any, body: Any, media: str, accept: str) -> tuple[int, Response]:
    block = stream_dr.parse_rows(body, media, state.limits)
    answer = stream_dr.transform(live, block, state.directory.schema)
    if accept == wire.ARROW_STREAM:
        return block.rows, Response(answer.to_arrow(), media_type=accept)
    return block.rows, wire.json_response(answer.to_json())
