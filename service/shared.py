"""Shared: what all requests of an application share, set once when it is made: also the queue of bodies to be learned; and
what is asked of every request."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

import stream_dr
from service.body_limits import Held
from service.metrics import Metrics
from service.problems import Problem
from service.settings import Settings
from service.warm_up import WarmUp


class Ingest:
    """From bodies to receipts: a body waits for the one thread that parses, then for the log; its sender for the receipt.

    What waits is bounded in bytes: a body counts as held (body_limits.py) until it is answered, and the log's own queue
    refuses parsed batches past the same setting. Batches are learned one after the other, so one thread that parses is
    enough, and the event loop is free to answer queries meanwhile.

    running: where parsed batches are queued. limits: what a batch may be. parsing: a pool of one thread.
    """

    def __init__(self, running: stream_dr.Running, limits: stream_dr.Limits, parsing: ThreadPoolExecutor) -> None:
        self._running, self._limits, self._parsing = running, limits, parsing

    async def take(self, body: bytes, media: str, key: str | None) -> stream_dr.Receipt:
        """The receipt of a batch, once it is durable. Raises what refuses it."""
        loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(await loop.run_in_executor(self._parsing, self._submit, body, media, key))

    async def check(self, body: bytes, media: str, key: str | None) -> stream_dr.DryRunReceipt:
        """What the receipt of a batch would say; nothing is appended. Raises what refuses it."""
        return await asyncio.get_running_loop().run_in_executor(self._parsing, self._check, body, media, key)

    def _submit(self, body: bytes, media: str, key: str | None) -> "Future[stream_dr.Receipt]":
        try:
            return self._running.submit(stream_dr.rows_draft(body, media, key, self._limits))
        except stream_dr.errors.StreamDRError as e:
            raise stream_dr.errors.without_frames(e) from None  # its frames hold the body

    def _check(self, body: bytes, media: str, key: str | None) -> stream_dr.DryRunReceipt:
        return self._running.check(stream_dr.rows_draft(body, media, key, self._limits))


@dataclass(frozen=True)
class Shared:
    """`app.state.shared`.

    held: request bodies in memory. stopping: set, on the event loop, once the service stops. warm_up: what is
    compiled before the service is ready. queries: the pool in which rows are projected. slow: the pool of what reads through
    the log or waits for a solution. figures: those of the dashboard, made when they are first asked for.
    """

    settings: Settings
    limits: stream_dr.Limits
    directory: stream_dr.Directory
    running: stream_dr.Running
    ingest: Ingest
    metrics: Metrics
    held: Held
    stopping: asyncio.Event
    warm_up: WarmUp
    queries: Executor
    slow: Executor
    figures: Callable[[], stream_dr.LiveFigures]

    async def done(self, awaited: Awaitable[object], seconds: float) -> bool:
        """Whether it is done within so many seconds and before the service stops; if not, it is cancelled."""
        work, stop = asyncio.ensure_future(awaited), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((work, stop), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return work.done() and not work.cancelled()
        finally:
            work.cancel()
            stop.cancel()


async def _shared(request: Request) -> Shared:
    shared: Shared = request.app.state.shared
    return shared


Service = Annotated[Shared, Depends(_shared)]
"""A route's parameter that gives it what is shared."""


async def given_once(request: Request) -> None:
    """Raise Problem `invalid_request` where a parameter is given more than once."""
    if len(request.query_params) < len(request.query_params.multi_items()):
        raise Problem("invalid_request", "A parameter is given more than once.")
