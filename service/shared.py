"""State that all requests share.

The state includes the parser of received batches, and the compilation of numba functions when the
service starts.
"""

import asyncio
import functools
import logging
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

log = logging.getLogger("stream_dr.warm_up")


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


class NumbaWarmUp:
    """Compilation of the numba functions of all estimators.

    Attributes
    ----------
    reason : str or None
        Sentence that says why the service is not ready. None if nothing is being compiled.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._was_reported = False

    def check_finished(self) -> None:
        """Raise ServiceError `not_ready` while functions are compiled.

        The first error is logged at level INFO. Later ones are logged at DEBUG, because probes call
        this every few seconds.
        """
        if self.reason is None:
            return

        error = ServiceError("not_ready", self.reason)
        error.is_repeated = self._was_reported
        self._was_reported = True
        raise error

    async def run(self, stopping: asyncio.Event) -> None:
        """Compile the estimators' functions in a thread, one by one.

        A compilation that takes longer than two seconds is logged. After `stopping` is set, no
        further estimator's functions are compiled.
        """
        kinds = list(stream_dr.ESTIMATORS.values())
        for number, kind in enumerate(kinds, start=1):
            if stopping.is_set():
                break
            line = f"compiling for {kind.__name__}, {number} of {len(kinds)}: once on this machine"
            self.reason = f"The service starts, {line}."
            await asyncio.to_thread(stream_dr.warm_up, [kind()], functools.partial(_log_compiling, line))
        self.reason = None


def _log_compiling(message: str, _: str) -> None:
    log.info(message)


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
    warm_up : NumbaWarmUp
        Compilation of functions before the service is ready.
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
    warm_up: NumbaWarmUp
    queries: Executor
    slow: Executor
    figures: Callable[[], stream_dr.LiveFigures]

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
