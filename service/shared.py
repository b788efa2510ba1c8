"""Shared: what all requests of an application share, set once when it is made, and what is asked of every one."""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

import stream_dr
from service.body_limits import Held
from service.ingest import Ingest
from service.metrics import Metrics
from service.problems import Problem
from service.settings import Settings


@dataclass(frozen=True)
class Shared:
    """`app.state.shared`.

    held: request bodies in memory. stopping: set, on the event loop, once the service stops. queries: the pool in which
    rows are projected. slow: the pool of what reads through the log or waits for a solution.
    """

    settings: Settings
    limits: stream_dr.Limits
    directory: stream_dr.Directory
    running: stream_dr.Running
    ingest: Ingest
    metrics: Metrics
    held: Held
    stopping: asyncio.Event
    queries: Executor
    slow: Executor

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
