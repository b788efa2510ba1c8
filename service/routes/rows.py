"""Routes that learn, unlearn, project and predict rows.

- /partial_fit and /unlearn: a response with a position is sent only after the batch is on disk.
  So a batch with a position is not lost if the process is killed.
- /transform and /predict: a request uses the projection that is published when it arrives. So it
  never waits for learning, and all rows of a response come from one version.
"""

import asyncio
from typing import Annotated, Any, Protocol

import orjson
from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel

import stream_dr
from service import schemas
from service.guards import ARROW_STREAM, JSON, negotiate_media_type, rows_format
from service.problems import ServiceError
from service.schemas import JsonDict, Key
from service.shared import AppState, Service

learn_router = APIRouter(tags=["learn"])
RECEIPT_RESPONSES: schemas.ResponsesByStatus = {
    200: {"description": "durable, and published if the request waited"},
    202: {"model": schemas.Receipt, "description": "durable, but not published by every model; `reason` says why"},
}


@learn_router.post(
    "/partial_fit",
    response_model_exclude_unset=True,
    openapi_extra=schemas.ROWS_BODY,
    responses=RECEIPT_RESPONSES | schemas.BODY_PROBLEMS | schemas.problems(409, 507),
)
async def partial_fit(
    request: Request,
    response: Response,
    shared: Service,
    query: Annotated[schemas.LearnQuery, Query()],
    key: Key = None,
) -> schemas.Receipt:
    """Append a batch durably and return its position.

    A batch that is sent again with the same Idempotency-Key is not learned twice.
    """
    body_format = rows_format(request)
    body = b"".join([piece async for piece in request.stream()])
    # `running.check` appends nothing, so the receipt has no position.
    if query.check:
        checked = await shared.parse_batch(shared.running.check, body, body_format, key)
        return _receipt_response(checked, position=None)

    # The batch is on disk when `appended` is done.
    appended = await shared.parse_batch(shared.running.submit, body, body_format, key)
    receipt = await asyncio.wrap_future(appended)
    return await _respond_with_receipt(shared, receipt, query.wait is not None, response)


@learn_router.post(
    "/unlearn",
    response_model_exclude_unset=True,
    openapi_extra={"requestBody": {"required": True}},
    responses=RECEIPT_RESPONSES | schemas.BODY_PROBLEMS | schemas.problems(409, 507),
)
async def unlearn(
    response: Response,
    shared: Service,
    rows: Annotated[schemas.Unlearn, Body(default_factory=dict, validate_default=True)],
    query: Annotated[schemas.UnlearnQuery, Query()],
    key: Key = None,
) -> schemas.Receipt:
    """Unlearn rows.

    A model whose state is a sum over rows subtracts the rows. Other models learn the log again
    without the rows. Releases never change, so the response names the releases that include the
    rows. With {"releases": "drop"}, they are deleted before the response.
    """
    loop = asyncio.get_running_loop()
    # `running.unlearn` finds the rows, and returns a future, which is done when the request is on
    # disk. Finding them reads through the log, so it runs in a thread of the pool `slow`.
    drop = rows.releases is not None
    appended = await loop.run_in_executor(shared.slow, shared.running.unlearn, rows.positions, rows.ids, key, drop)
    receipt = await asyncio.wrap_future(appended)
    releases = await loop.run_in_executor(shared.slow, shared.running.releases_of_unlearned, receipt.position)
    answer = await _respond_with_receipt(shared, receipt, query.wait is not None, response)
    answer.releases = [schemas.UnlearnedRelease(**release) for release in releases]
    return answer


def _receipt_response(receipt: stream_dr.Receipt | stream_dr.DryRunReceipt, position: int | None) -> schemas.Receipt:
    # FastAPI sends only the fields that are set here.
    answer = schemas.Receipt(position=position, rows=receipt.rows, duplicate=receipt.duplicate)
    if receipt.columns_missing:
        answer.columns_missing = list(receipt.columns_missing)
    return answer


async def _respond_with_receipt(
    shared: AppState, receipt: stream_dr.Receipt, wait: bool, response: Response
) -> schemas.Receipt:
    """Return the response to an appended batch.

    wait: True to wait until every model has published the batch, at most `wait_timeout` seconds.
        If a model has not published the batch then, or cannot publish the batch, or if the service
        stops, the status is 202 and the response has the reason.
    response: response whose status is set.
    """
    answer = _receipt_response(receipt, receipt.position)
    if not wait:
        return answer

    # The result of `inclusion` is None when all models have published the batch, or else the
    # reason why some model never will.
    inclusion = asyncio.wrap_future(shared.running.future_until_all_include(receipt.position))
    ended = await shared.finishes_in_time(inclusion, shared.settings.wait_timeout)
    if ended:
        reason = inclusion.result()
    elif shared.stopping.is_set():
        reason = "the service is stopping"
    else:
        reason = "models had not published it in time (wait_timeout)"

    answer.lag = 0
    if reason:
        answer.lag = shared.running.lag
        answer.reason = reason
        response.status_code = 202
    return answer


query_router = APIRouter(tags=["project"])

BYTES_PER_NUMBER = {JSON: 120, ARROW_STREAM: 40}
"""Memory for each number in a response, in bytes, by media type of the response.

All copies of the response that exist until it is sent are included.
"""

BASE_RESPONSE_BYTES = 32 << 20
"""Bytes that a response may take in addition to 32 times the bytes of the request's rows."""


class RowsResult(Protocol):
    """Result of a query: projected rows or predicted targets."""

    def to_json(self) -> JsonDict:
        """Return the projected or predicted rows as the JSON object of the response."""

    def to_arrow(self) -> bytes:
        """Return the projected or predicted rows as the Arrow stream of the response."""


def _rows_route_arguments(response_schema: type[BaseModel]) -> JsonDict:
    """Return what a route that receives rows tells FastAPI of its bodies and responses."""
    # response_schema: schema of the route's JSON response.
    arrow = {ARROW_STREAM: schemas.binary_body_schema("an Arrow stream")}
    responses: schemas.ResponsesByStatus = {200: {"model": response_schema, "content": arrow}}
    responses |= schemas.BODY_PROBLEMS | schemas.MODEL_PROBLEMS | schemas.problems(406)
    return {"openapi_extra": schemas.ROWS_BODY, "responses": responses}


@query_router.get("/transform", response_model_exclude_unset=True, responses=schemas.MODEL_PROBLEMS)
async def transform_one(shared: Service, query: Annotated[schemas.OneRowQuery, Query()]) -> schemas.Projected:
    """Project one row of the query.

    Example of a dense row: ?model=lda&x=0.1,0.2. Example of a sparse row:
    ?model=lda&indices=3,17&values=0.5,1.2.
    """
    release = await _choose_release(shared, query)
    fields = _project_block(shared, release, _parse_query_row(query)).to_json()
    # A row of a query has no id. Leave out empty fields.
    for name in ("id", "unseen"):
        if not fields.get(name):
            fields.pop(name, None)
    return schemas.Projected(**fields)


@query_router.post("/transform", **_rows_route_arguments(schemas.Projected))
async def transform(request: Request, shared: Service, query: Annotated[schemas.TransformQuery, Query()]) -> Response:
    """Project many rows, in the formats of /partial_fit.

    Targets in the batch are ignored. A batch without rows gives a response without rows.
    """
    return await _respond_to_rows(request, shared, query, predicting=False)


@query_router.post("/predict", **_rows_route_arguments(schemas.Predicted))
async def predict(request: Request, shared: Service, query: Annotated[schemas.TransformQuery, Query()]) -> Response:
    """Predict the targets of many rows.

    The methods lda, class_means, cca, opls and plsda can predict.
    """
    return await _respond_to_rows(request, shared, query, predicting=True)


async def _respond_to_rows(
    request: Request, shared: AppState, query: schemas.TransformQuery, predicting: bool
) -> Response:
    """Return the response to a request with rows.

    The response is computed in a thread.

    predicting: True to predict the rows' targets, False to project the rows.
    """
    body_format = rows_format(request)
    accept = negotiate_media_type(request, (JSON, ARROW_STREAM))
    release = await _choose_release(shared, query)
    body = b"".join([piece async for piece in request.stream()])

    def compute_response() -> Response:
        block = stream_dr.parse_rows(body, body_format, shared.limits, shared.directory.schema.names or ())
        # The limit of the response grows with the size of the request. Many rows of zeros take few
        # bytes in a sparse or packed request, so an eighth of the rows' bytes in memory counts.
        n_request_bytes = max(len(body), block.nbytes // 8)
        _refuse_large_response(block.rows, _numbers_per_row(release, predicting), accept, n_request_bytes)
        result: RowsResult
        if predicting:
            result = stream_dr.predict(release, block)
        else:
            result = _project_block(shared, release, block)
        content = result.to_arrow() if accept == ARROW_STREAM else orjson.dumps(result.to_json())
        return Response(content, media_type=accept)

    return await asyncio.get_running_loop().run_in_executor(shared.queries, compute_response)


async def _choose_release(shared: AppState, query: schemas.TransformQuery) -> stream_dr.Release:
    """Return the projection that a query asks for.

    Raises UnknownModel or UnknownRelease. Raises ServiceError `invalid_request` if the query names
    no model and the directory does not have exactly one.
    """
    model_name = query.model
    if model_name is None:
        names = sorted(shared.directory.models)
        if len(names) != 1:
            detail = f"No model is named; there are: {', '.join(names) or 'none'}. Give model=NAME."
            raise ServiceError("invalid_request", detail)
        model_name = names[0]
    model = shared.directory.model(model_name)
    releases = shared.directory.releases
    if query.release is None:
        return releases.served(model)
    # The release may have to be read from its file.
    return await asyncio.get_running_loop().run_in_executor(shared.queries, releases.read, model, query.release)


def _refuse_large_response(n_rows: int, numbers_per_row: int, content_type: str, n_request_bytes: int) -> None:
    """Raise LimitExceeded if a response would take too much memory.

    The limit grows with the size of the rows in the request.

    n_rows: number of rows.
    numbers_per_row: how many numbers the response has for each row.
    content_type: media type of the response.
    n_request_bytes: number of bytes of all rows in the request.
    """
    # Each byte of the request allows 32 bytes of response, in addition to a constant.
    # A response without numbers has no limit.
    row_bytes = numbers_per_row * BYTES_PER_NUMBER[content_type]
    limit = n_rows
    if row_bytes:
        limit = (32 * n_request_bytes + BASE_RESPONSE_BYTES) // row_bytes
    if n_rows > limit:
        raise stream_dr.errors.LimitExceeded(
            f"{n_rows} rows of {n_request_bytes} bytes would be answered with {numbers_per_row} numbers each; so many "
            f"bytes are answered with {limit} such rows as {content_type}. Send at most {limit} rows a request.",
            needed=n_rows,
            limit=limit,
        )


def _numbers_per_row(release: stream_dr.Release, predicting: bool) -> int:
    """Return how many numbers a response has for each row at most, to limit its size.

    A projected row has one number for each component. A prediction has one for each class or
    target. It may also have labels as text, of which eight characters count as one number.
    """
    if not predicting:
        return release.published.projection.n_components
    # The readout predicts targets from projected rows. `offset` has one number for each target.
    # The readout is None if the estimator cannot predict.
    readout = release.published.readout
    if readout is None:
        return 0
    label_characters = sum(len(str(label)) for label in readout.labels)
    return len(readout.offset) + label_characters // 8


def _project_block(shared: AppState, release: stream_dr.Release, block: stream_dr.Block) -> RowsResult:
    result = stream_dr.transform(release, block)
    shared.metrics.rows_transformed.inc(block.rows)
    return result


def _parse_query_row(query: schemas.OneRowQuery) -> stream_dr.Block:
    """Return a query's row as a Block of one row.

    Raises ServiceError `invalid_request`, NotFinite, InvalidRows or InvalidIndex.
    """
    # Accept `x` alone, or `indices` and `values` together. Refuse every other combination.
    if query.x is not None and query.indices is None and query.values is None:
        return stream_dr.one_row(_split_numbers("x", query.x, float))
    if query.x is not None or query.indices is None or query.values is None:
        detail = "Give either x=0.1,0.2 (a dense row) or indices=3,17&values=0.5,1.2 (a sparse one)."
        raise ServiceError("invalid_request", detail)
    values = _split_numbers("values", query.values, float)
    indices = _split_numbers("indices", query.indices, int)
    return stream_dr.one_row(values, indices)


def _split_numbers(parameter: str, text: str, number_type: type[int] | type[float]) -> list[Any]:
    try:
        if text.strip():
            return list(map(number_type, text.split(",")))
        return []
    except ValueError:
        kinds = "integers" if number_type is int else "numbers"
        detail = f"{parameter}={text!r} is not a list of {kinds} parted by commas."
        raise ServiceError("invalid_request", detail) from None
