"""Project: rows through a model's published projection (GET and POST /transform).

The published projection is taken by reference: a query never waits for learning, and all rows of one answer come from one
version. One row is projected at once, many in a thread.

Why this way: under full ingest a query costs what it costs alone.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

import stream_dr
from service import auth, documents, wire

router = APIRouter(tags=["project"], dependencies=[Depends(auth.reads)])


@router.get("/transform", responses=documents.TRANSFORM_ANSWERS)
async def transform_one(
    request: Request,
    model: Annotated[str, Query(description="the model's name")],
    x: Annotated[str | None, Query(description="a dense row: 0.1,0.2")] = None,
    indices: Annotated[str | None, Query(description="a sparse row's indices: 3,17")] = None,
    values: Annotated[str | None, Query(description="its values: 0.5,1.2")] = None,
) -> Response:
    """Project one row."""
    state = request.app.state
    row = wire.one_row(x, indices, values)
    answer = stream_dr.transform(state.directory.model(model), row, state.directory.schema)
    state.metrics.transformed += 1
    told = answer._asdict()
    return wire.json_response({k: told[k] for k in ("model", "version", "position", "solution", "z")})


@router.post("/transform", openapi_extra=documents.ROWS_BODY, responses=documents.TRANSFORM_ANSWERS)
async def transform_many(request: Request, model: Annotated[str, Query(description="the model's name")]) -> Response:
    """Project many rows, the same rows as /partial_fit takes; targets are ignored."""
    state = request.app.state
    media, accept = wire.media(request), wire.accepted(request, (wire.JSON, wire.ARROW_STREAM))
    live = state.directory.model(model)
    body = await request.body()
    rows, response = await state.in_thread(_project, state, live, body, media, accept)
    state.metrics.transformed += rows
    return response


def _project(state: Any, live: Any, body: bytes, media: str, accept: str) -> tuple[int, Response]:
    block = stream_dr.parse_rows(body, media, state.limits)
    answer = stream_dr.transform(live, block, state.directory.schema)
    if accept == wire.ARROW_STREAM:
        return block.rows, Response(answer.to_arrow(), media_type=accept)
    return block.rows, wire.json_response(answer.to_json())
