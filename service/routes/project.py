"""Project: rows through a model's published projection (GET and POST /transform), and what is
predicted of them (POST /predict).

The published projection is taken by reference: a query never waits for learning, and all rows of one answer come from one
version. One row is projected at once, many in a thread.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

import stream_dr
from service import schemas
from service.body_limits import rows_medium
from service.media import ARROW_STREAM, JSON, accepted
from service.problems import Problem
from service.shared import Service, Shared

router = APIRouter(tags=["project"])

NUMBER_BYTES = {JSON: 120, ARROW_STREAM: 40}
"""Bytes that a number of an answer takes in all copies of it, until it is sent."""

ANSWER_BYTES = 32 << 20
"""Bytes that any answer may take, beside 32 times those of the rows it is about."""


def _many(model: type[BaseModel]) -> dict[str, Any]:
    """What FastAPI is told of a route that takes rows and answers with a model, or in Arrow."""
    told: schemas.Answers = {200: {"model": model, "content": {ARROW_STREAM: schemas.bytes_of("an Arrow stream")}}}
    return {
        "openapi_extra": schemas.ROWS_BODY,
        "responses": told | schemas.BODY | schemas.MODEL | schemas.problems(406),
    }


@router.get("/transform", response_model_exclude_unset=True, responses=schemas.MODEL)
async def transform_one(shared: Service, query: Annotated[schemas.OneRowQuery, Query()]) -> schemas.Projected:
    """Project one row: ?model=lda&x=0.1,0.2 or ?model=lda&indices=3,17&values=0.5,1.2."""
    told = _project(shared, _model(shared, query.model), _row(query)).to_json()
    return schemas.Projected(**{name: fact for name, fact in told.items() if name not in ("id", "unseen") or fact})


@router.post("/transform", **_many(schemas.Projected))
async def transform(request: Request, shared: Service, query: Annotated[schemas.TransformQuery, Query()]) -> Response:
    """Project many rows, the same rows as /partial_fit takes; targets are ignored, and no rows give none."""
    return await _answer(request, shared, query.model, _project, _components)


@router.post("/predict", **_many(schemas.Predicted))
async def predict(request: Request, shared: Service, query: Annotated[schemas.TransformQuery, Query()]) -> Response:
    """Predict the targets of many rows, by a model whose method does: lda, class_means, cca, opls, plsda."""
    return await _answer(request, shared, query.model, _predict, _scores)


async def _answer(
    request: Request,
    shared: Shared,
    name: str | None,
    ask: Callable[[Shared, stream_dr.Model, stream_dr.Block], Any],
    width: Callable[[stream_dr.Model], int],
) -> Response:
    """What is asked of a model about a body of rows, in a thread. width: numbers that the answer has a row."""
    medium, accept = rows_medium(request), accepted(request, (JSON, ARROW_STREAM))
    model = _model(shared, name)
    body = b"".join([piece async for piece in request.stream()])

    def answered() -> Response:
        block = stream_dr.parse_rows(body, medium, shared.limits)
        _check_answer(block.rows, width(model), accept, max(len(body), block.nbytes // 8))
        told = ask(shared, model, block)
        return Response(told.to_arrow() if accept == ARROW_STREAM else orjson.dumps(told.to_json()), media_type=accept)

    return await asyncio.get_running_loop().run_in_executor(shared.queries, answered)


def _model(shared: Shared, name: str | None) -> stream_dr.Model:
    """The model of that name, or the only one. Raises UnknownModel, Problem `invalid_request`."""
    there = sorted(shared.directory.models)
    if name is None and len(there) != 1:
        raise Problem(
            "invalid_request", f"No model is named; there are: {', '.join(there) or 'none'}. Give model=NAME."
        )
    return shared.directory.model(there[0] if name is None else name)


def _check_answer(rows: int, width: int, accept: str, given: int) -> None:
    """Raise LimitExceeded where the answer to rows of `given` bytes would take much more memory than they may."""
    most = (32 * given + ANSWER_BYTES) // (width * NUMBER_BYTES[accept]) if width else rows
    if rows > most:
        raise stream_dr.errors.LimitExceeded(
            f"{rows} rows of {given} bytes would be answered with {width} numbers each; so many bytes are answered with "
            f"{most} such rows as {accept}. Send at most {most} rows a request.",
            needed=rows,
            limit=most,
        )


def _components(model: stream_dr.Model) -> int:
    """Numbers of a projected row."""
    return model.published.projection.n_components if model.published else 0


def _scores(model: stream_dr.Model) -> int:
    """Numbers of a predicted row, eight letters of a label counted as one."""
    readout = getattr(model.published.projection, "readout", None) if model.published else None
    return 0 if readout is None else len(readout.offset) + sum(len(str(label)) for label in readout.labels) // 8


def _project(shared: Shared, model: stream_dr.Model, block: stream_dr.Block) -> Any:
    answer = stream_dr.transform(model, block, shared.directory.schema)
    shared.metrics.rows_transformed.inc(block.rows)
    return answer


def _predict(shared: Shared, model: stream_dr.Model, block: stream_dr.Block) -> Any:
    return stream_dr.predict(model, block, shared.directory.schema)


def _row(query: schemas.OneRowQuery) -> stream_dr.Block:
    """The one row in a query. Raises Problem `invalid_request`, NotFinite, InvalidRows or InvalidIndex."""
    if (query.x is None) == (query.indices is None) or (query.indices is None) != (query.values is None):
        raise Problem(
            "invalid_request", "Give either x=0.1,0.2 (a dense row) or indices=3,17&values=0.5,1.2 (a sparse one)."
        )
    if query.x is not None:
        return stream_dr.one_row(_numbers("x", query.x, float))
    return stream_dr.one_row(
        _numbers("values", query.values or "", float), _numbers("indices", query.indices or "", int)
    )


def _numbers(name: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        return list(map(kind, text.split(","))) if text.strip() else []
    except ValueError:
        what = "integers" if kind is int else "numbers"
        raise Problem("invalid_request", f"{name}={text!r} is not a list of {what} parted by commas.") from None
