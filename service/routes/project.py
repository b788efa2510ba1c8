"""Project: rows through a model's published projection (GET and POST /transform), and what is
predicted of them (POST /predict).

The published projection is taken by reference: a query never waits for learning, and all rows of one answer come from one
version. One row is projected at once, many in a thread.
"""

import asyncio
import math
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

import stream_dr
from service import schemas
from service.body_limits import rows_medium
from service.media import ARROW_STREAM, JSON, accepted
from service.problems import Problem
from service.shared import Shared

router = APIRouter(tags=["project"])


@router.get("/transform", response_model_exclude_unset=True, responses=schemas.MODEL)
async def transform_one(request: Request, query: Annotated[schemas.OneRowQuery, Query()]) -> schemas.Projected:
    """Project one row: ?model=lda&x=0.1,0.2 or ?model=lda&indices=3,17&values=0.5,1.2."""
    shared: Shared = request.app.state.shared
    directory = shared.directory
    answer = stream_dr.transform(directory.model(query.model), _row(query), directory.schema)
    shared.metrics.rows_transformed.inc()
    told = schemas.Projected(
        model=answer.model,
        version=answer.version,
        position=answer.position,
        solution=answer.solution,
        z=answer.z.tolist(),
    )
    if answer.unseen:
        told.unseen = answer.unseen
    return told


@router.post(
    "/transform",
    openapi_extra=schemas.ROWS_BODY,
    responses={200: {"model": schemas.Projected, "content": {ARROW_STREAM: schemas.BYTES}}}
    | schemas.BODY
    | schemas.MODEL
    | schemas.problems(406),
)
async def transform_many(request: Request, query: Annotated[schemas.TransformQuery, Query()]) -> Response:
    """Project many rows, the same rows as /partial_fit takes; targets are ignored, and no rows give none."""
    shared: Shared = request.app.state.shared
    medium, accept = rows_medium(request), accepted(request, (JSON, ARROW_STREAM))
    model = shared.directory.model(query.model)
    body = b"".join([piece async for piece in request.stream()])
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(shared.queries, _project, shared, model, body, medium, accept)


def _project(shared: Shared, model: stream_dr.Model, body: bytes, medium: str, accept: str) -> Response:
    block = stream_dr.parse_rows(body, medium, shared.limits)
    answer = stream_dr.transform(model, block, shared.directory.schema)
    shared.metrics.rows_transformed.inc(block.rows)
    return Response(answer.to_arrow() if accept == ARROW_STREAM else orjson.dumps(answer.to_json()), media_type=accept)


@router.post(
    "/predict",
    openapi_extra=schemas.ROWS_BODY,
    responses={200: {"model": schemas.Predicted, "content": {ARROW_STREAM: schemas.BYTES}}}
    | schemas.BODY
    | schemas.MODEL
    | schemas.problems(406),
)
async def predict(request: Request, query: Annotated[schemas.TransformQuery, Query()]) -> Response:
    """Predict the targets of many rows, by a model whose method does: lda, class_means, cca, opls, plsda."""
    shared: Shared = request.app.state.shared
    medium, accept = rows_medium(request), accepted(request, (JSON, ARROW_STREAM))
    model = shared.directory.model(query.model)
    body = b"".join([piece async for piece in request.stream()])
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(shared.queries, _predict, shared, model, body, medium, accept)


def _predict(shared: Shared, model: stream_dr.Model, body: bytes, medium: str, accept: str) -> Response:
    block = stream_dr.parse_rows(body, medium, shared.limits)
    answer = stream_dr.predict(model, block, shared.directory.schema)
    return Response(answer.to_arrow() if accept == ARROW_STREAM else orjson.dumps(answer.to_json()), media_type=accept)


def _row(query: schemas.OneRowQuery) -> stream_dr.Block:
    """The one row in a query. Raises Problem `invalid_request`, NotFinite, InvalidRows or InvalidIndex."""
    if (query.x is None) == (query.indices is None) or (query.indices is None) != (query.values is None):
        raise Problem(
            "invalid_request", "Give either x=0.1,0.2 (a dense row) or indices=3,17&values=0.5,1.2 (a sparse one)."
        )
    if query.x is not None:
        return stream_dr.one_row(_floats("x", query.x))
    return stream_dr.one_row(_floats("values", query.values or ""), _ints(query.indices or ""))


def _floats(name: str, text: str) -> list[float]:
    try:
        numbers = list(map(float, text.split(","))) if text.strip() else []
    except ValueError:
        raise Problem("invalid_request", f"{name}={text!r} is not a list of numbers parted by commas.") from None
    if not all(map(math.isfinite, numbers)):
        column = next(i for i, number in enumerate(numbers) if not math.isfinite(number))
        raise stream_dr.errors.NotFinite(f"row 0, entry {column} of {name} is {numbers[column]}.", row=0, column=column)
    return numbers


def _ints(text: str) -> list[int]:
    try:
        return list(map(int, text.split(","))) if text.strip() else []
    except ValueError:
        raise Problem("invalid_request", f"indices={text!r} is not a list of integers parted by commas.") from None
