"""Learn: batches in (POST /partial_fit) and rows out again (POST /unlearn).

Parsing runs on the event loop, that of large batches in a thread (intake.py), admission and the append in the appender;
the answer is sent after the append is durable. A request that waits for its models waits in a thread of its own kind, so
waiting never holds up parsing.

The route of batches reads its query itself: FastAPI's reading of two parameters and a dependency took 0.2 ms of every one.

Why this way: an answer that carries a position is a promise that survives a kill.
"""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

import stream_dr
from service import auth, documents, wire
from service.problems import Problem

router = APIRouter(tags=["learn"])


class Unlearn(BaseModel):
    """Rows to take out: by the positions of their events, or by their ids."""

    model_config = ConfigDict(extra="forbid", strict=True)

    positions: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field([], max_length=10_000)
    ids: list[Annotated[str, Field(max_length=1_000)]] = Field([], max_length=10_000)


@router.post("/partial_fit", openapi_extra=documents.LEARN, responses=documents.LEARN_ANSWERS)
async def partial_fit(request: Request) -> Response:
    """Learn a batch: append it durably, then answer its position.

    A retry with the same Idempotency-Key is not learned twice.
    """
    state, headers = request.app.state, request.headers
    auth.check(state.settings, headers, "write")
    query = wire.query(request.scope["query_string"], "wait", "check")
    wait = query.get("wait")
    if wait not in (None, "applied"):
        raise Problem("invalid_request", f"wait={wait!r}; leave it out, or say wait=applied.")
    media, key = wire.media(headers), wire.idempotency_key(headers)
    body = await wire.body(request)
    if wire.flag(query.get("check")):
        draft = await state.in_thread(stream_dr.rows_draft, body, media, key, state.limits)
        await state.in_thread(state.running.check, draft)
        return wire.json_response({"position": None, "rows": draft.rows, "duplicate": False})
    receipt = await state.intake.take(body, media, key)
    state.metrics.learned(receipt)
    return await _answer(request, receipt, wait is not None)


@router.post(
    "/unlearn",
    dependencies=[Depends(auth.writes)],
    openapi_extra=documents.UNLEARN,
    responses=documents.LEARN_ANSWERS,
)
async def unlearn(request: Request, rows: Unlearn, wait: Literal["applied"] | None = None) -> Response:
    """Take rows out again: additive models subtract them, the others are rebuilt from the log without them."""
    wire.query(request.scope["query_string"], "wait")
    if bool(rows.positions) == bool(rows.ids):
        raise Problem("invalid_request", 'Give either {"positions": [...]} or {"ids": [...]}.')
    running, key = request.app.state.running, wire.idempotency_key(request.headers)
    future = await request.app.state.looking_up(running.unlearn, rows.positions, rows.ids, key)
    return await _answer(request, await asyncio.wrap_future(future), wait is not None)


def told(receipt: Any) -> dict[str, Any]:
    """What a receipt says."""
    return {"position": receipt.position, "rows": receipt.rows, "duplicate": receipt.duplicate}


async def _answer(request: Request, receipt: Any, wait: bool) -> Response:
    if not wait:
        return wire.json_response(told(receipt))
    state = request.app.state
    seconds = state.settings.wait_timeout
    applied = await state.waiting(state.running.wait_applied, receipt.position, seconds, state.stopping)
    return wire.json_response(told(receipt) | {"lag": 0 if applied else state.running.lag}, 200 if applied else 202)
