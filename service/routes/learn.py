"""Routes that learn batches and unlearn rows.

A response with a position is sent only after the batch is on disk. So a batch with a position is
not lost if the process is killed.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

import stream_dr
from service import schemas
from service.request_bodies import rows_format
from service.schemas import Key
from service.shared import AppState, Service

router = APIRouter(tags=["learn"])
RECEIPT_RESPONSES: schemas.ResponsesByStatus = {
    200: {"description": "durable, and published if the request waited"},
    202: {"model": schemas.Receipt, "description": "durable, but not published by every model; `reason` says why"},
}


@router.post(
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
    if query.check:
        return _receipt_response(await shared.ingest.check(body, body_format, key), position=None)

    receipt = await shared.ingest.append(body, body_format, key)
    return await _respond_with_receipt(shared, receipt, query.wait is not None, response)


@router.post(
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
    without the rows.
    """
    loop = asyncio.get_running_loop()
    appended = await loop.run_in_executor(shared.slow, shared.running.unlearn, rows.positions, rows.ids, key)
    return await _respond_with_receipt(shared, await asyncio.wrap_future(appended), query.wait is not None, response)


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
    if wait:
        inclusion = asyncio.wrap_future(shared.running.future_until_all_include(receipt.position))
        ended = await shared.finish_before_timeout_or_stop(inclusion, shared.settings.wait_timeout)
        if ended:
            reason = inclusion.result()
        elif shared.stopping.is_set():
            reason = "the service is stopping"
        else:
            reason = "models had not published it in time (wait_timeout)"
        answer.lag = shared.running.lag if reason else 0
        if reason:
            answer.reason = reason
            response.status_code = 202
    return answer
