"""State that all requests share, with the parser of received batches."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

import stream_dr
from service.metrics import Metrics
from service.problems import ServiceError
from service.request_bodies import BodyFormat, BodyMemory
from service.settings import Settings


class Ingest:
    """Parser of request bodies, which passes batches to the engine.

    A body waits for the one thread that parses. The parsed batch then waits for the log. The
    setting `max_queue_bytes` is the limit of waiting bytes. `BodyMemory` applies the limit to the
    bodies of all requests. The engine applies the limit to the parsed batches.

    Parameters
    ----------
    running : Running
        Engine that takes the parsed batches.
    limits : Limits
        Limits of a batch.
    parsing : ThreadPoolExecutor
        Pool of one thread. One thread is enough, because batches are learned one after the other.
    """

    def __init__(self, running: stream_dr.Running, limits: stream_dr.Limits, parsing: ThreadPoolExecutor) -> None:
        self._running = running
        self._limits = limits
        self._parsing = parsing

    async def append(self, body: bytes, body_format: BodyFormat, idempotency_key: str | None) -> stream_dr.Receipt:
        """Append a batch to the log, and return the receipt.

        The receipt is returned when the batch is on disk.

        body: the rows, in Arrow or JSON format.
        body_format: "arrow" or "json".
        idempotency_key: idempotency key or None.

        Raises a StreamDRError if the batch is refused.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(
            await loop.run_in_executor(self._parsing, self._parse_and_submit, body, body_format, idempotency_key)
        )

    async def check(self, body: bytes, body_format: BodyFormat, idempotency_key: str | None) -> stream_dr.DryRunReceipt:
        """Return a batch's receipt without appending the batch.

        The parameters are the parameters of `append`. Raises a StreamDRError if the batch would be
        refused.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._parsing, self._parse_and_check, body, body_format, idempotency_key
        )

    def _parse_and_submit(
        self, body: bytes, body_format: BodyFormat, idempotency_key: str | None
    ) -> "Future[stream_dr.Receipt]":
        try:
            names = self._running.directory.schema.names or ()
            return self._running.submit(stream_dr.rows_draft(body, body_format, idempotency_key, self._limits, names))
        except stream_dr.errors.StreamDRError as e:
            # Remove the traceback from the error.
            # The frames of the traceback refer to the body, so the body would stay in memory.
            raise stream_dr.errors.remove_stack_frames(e) from None

    def _parse_and_check(
        self, body: bytes, body_format: BodyFormat, idempotency_key: str | None
    ) -> stream_dr.DryRunReceipt:
        names = self._running.directory.schema.names or ()
        return self._running.check(stream_dr.rows_draft(body, body_format, idempotency_key, self._limits, names))


@dataclass(frozen=True)
class AppState:
    """State of one application, stored as `app.state.shared`.

    Attributes
    ----------
    settings : Settings
    limits : Limits
        Limits of a batch, from the settings.
    directory : Directory
        The directory that is served, open for writing.
    running : Running
        Engine that learns and publishes.
    ingest : Ingest
    metrics : Metrics
    memory : BodyMemory
        Memory of all request bodies.
    stopping : asyncio.Event
        Set on the event loop when the service begins to stop.
    first_ids : set of int
        Ids of the models that were in the directory at the start.
    queries : Executor
        Pool of the threads that project rows.
    slow : Executor
        Pool of the threads that read through the log or wait for a solution.
    figures : callable
        Returns the figures of the dashboard, which are created at the first call.
    """

    settings: Settings
    limits: stream_dr.Limits
    directory: stream_dr.Directory
    running: stream_dr.Running
    ingest: Ingest
    metrics: Metrics
    memory: BodyMemory
    stopping: asyncio.Event
    first_ids: set[int]
    queries: Executor
    slow: Executor
    figures: Callable[[], stream_dr.LiveFigures]

    @property
    def warming(self) -> list[str]:
        """Names of the models of the start that are being compiled."""
        return [m.name for m in self.directory.models.values() if m.status == "warming" and m.id in self.first_ids]

    async def finish_before_timeout_or_stop(self, awaitable: Awaitable[object], timeout_seconds: float) -> bool:
        """Wait for `awaitable`, and return True if it finishes.

        If `timeout_seconds` pass or the service stops first, cancel `awaitable` and return False.
        """
        work = asyncio.ensure_future(awaitable)
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((work, stop), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            return work.done() and not work.cancelled()
        finally:
            work.cancel()
            stop.cancel()


async def _app_state(request: Request) -> AppState:
    state: AppState = request.app.state.shared
    return state


Service = Annotated[AppState, Depends(_app_state)]
"""Type of a route's parameter that receives the state of the application."""


async def refuse_repeated_parameters(request: Request) -> None:
    """Raise ServiceError `invalid_request` if a query parameter is repeated."""
    if len(request.query_params) < len(request.query_params.multi_items()):
        raise ServiceError("invalid_request", "A parameter is given more than once.")
