"""Learn: batches in (POST /partial_fit) and rows out again (POST /unlearn).

An answer that carries a position is a promise that survives a kill: it is sent after the append is durable.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

import stream_dr
from service import schemas
from service.body_limits import rows_medium
from service.schemas import Key
from service.shared import Service, Shared

router = APIRouter(tags=["learn"])
ANSWERS: schemas.Answers = {
    200: {"description": "durable"},
    202: {"model": schemas.Receipt, "description": "durable; not published by every model, and why"},
}


@router.post(
    "/partial_fit",
    response_model_exclude_unset=True,
    openapi_extra=schemas.ROWS_BODY,
    responses=ANSWERS | schemas.BODY | schemas.problems(409, 507),
)
async def partial_fit(
    request: Request,
    response: Response,
    shared: Service,
    query: Annotated[schemas.LearnQuery, Query()],
    key: Key = None,
) -> schemas.Receipt:
    """Learn a batch: append it durably, then answer its position.

    A retry with the same Idempotency-Key is not learned twice.
    """
    medium = rows_medium(request)
    body = b"".join([piece async for piece in request.stream()])
    if query.check:
        checked = await shared.ingest.check(body, medium, key)
        return _told(checked, position=None)
    receipt = await shared.ingest.take(body, medium, key)
    shared.metrics.learned(receipt)
    return await _answer(shared, receipt, query.wait is not None, response)


@router.post(
    "/unlearn",
    response_model_exclude_unset=True,
    openapi_extra={"requestBody": {"required": True}},
    responses=ANSWERS | schemas.BODY | schemas.problems(409, 507),
)
async def unlearn(
    response: Response,
    shared: Service,
    rows: Annotated[schemas.Unlearn, Body(default_factory=dict, validate_default=True)],
    query: Annotated[schemas.UnlearnQuery, Query()],
    key: Key = None,
) -> schemas.Receipt:
    """Take rows out again: additive models subtract them, the others are rebuilt from the log without them."""
    loop = asyncio.get_running_loop()
    appended = await loop.run_in_executor(shared.slow, shared.running.unlearn, rows.positions, rows.ids, key)
    return await _answer(shared, await asyncio.wrap_future(appended), query.wait is not None, response)


def _told(receipt: stream_dr.Receipt | stream_dr.DryRunReceipt, position: int | None) -> schemas.Receipt:
    told = schemas.Receipt(position=position, rows=receipt.rows, duplicate=receipt.duplicate)
    if receipt.columns_missing:
        told.columns_missing = list(receipt.columns_missing)
    return told


async def _answer(shared: Shared, receipt: stream_dr.Receipt, wait: bool, response: Response) -> schemas.Receipt:
    told = _told(receipt, receipt.position)
    if wait:
        applied = asyncio.wrap_future(shared.running.applied(receipt.position))
        ended = await shared.done(applied, shared.settings.wait_timeout)
        reason = applied.result() if ended else "models had not published it in time (wait_timeout)"
        told.lag = shared.running.lag if reason else 0
        if reason:
            told.reason, response.status_code = reason, 202
    return told
