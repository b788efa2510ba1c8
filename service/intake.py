"""Intake: from bodies to receipts. A body is parsed, then queued for the log; who gave it in awaits its receipt.

Bodies are parsed in a thread, one after the other, or on the event loop: those of at most AT_ONCE bytes whose schema was
parsed in the thread before, and quickly. The loop comes round between two of them, so that answers and the next bodies'
first bytes do not wait for all that are there: 1 MB batches came in 2 to 9 % faster so. Bytes alone do not tell how long a
body takes (thousands of columns, a kernel that is not compiled yet). After one that took SLOW seconds on the event loop all
go to the thread for REST seconds; for WAY seconds after a query: who asks does not wait behind batches.

What the log has answered is kept until the event loop comes to it, which is woken once for all the batches that became
durable together.

Cost: 0.3 ms a megabyte of sparse rows, during which the event loop does nothing else; it lets other threads run in half of
that. Memory: the schemas that are known, KNOWN of LONGEST bytes at most.

Why this way: a thread that parses and the event loop took the interpreter from each other several times a batch, and each
waking of a thread on the other processor took 20 µs: the same work took both of them nearly twice as long, and 1 MB
batches came in a twentieth to a fifth slower than parsed on the event loop (`python benchmarks/service.py ingest --estimator
lda`). Batches are learned one after the other, so one thread is enough for the large ones. A pool, and futures chained to
futures, was more work for the event loop on every batch.
"""

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import stream_dr

AT_ONCE = {"arrow": 2 << 20, "json": 8 << 10}
"""Bytes of the largest body that is parsed on the event loop, by medium."""

QUICK = 0.005
"""Seconds of the processor that a body may take in the thread for its schema to be known as quick."""

SLOW, REST = 0.02, 10.0
"""Seconds: after a body took so much of the processor on the event loop, parsing is left to the thread for so long. More
than QUICK: on a machine shared with others a millisecond's work is counted as five now and then."""

KNOWN, LONGEST = 64, 16 << 10
"""Schemas that are known to be parsed quickly, and bytes of the longest one."""

WAY = 1.0
"""Seconds for which parsing is left to the thread after a query. With parsing on the event loop GET /transform took twice as
long as a bare route under full ingest, with the thread 1.7 times (`python benchmarks/service.py latency`)."""


class _Given(NamedTuple):
    """A body, and who waits for its receipt."""

    waiter: Any
    body: Any
    media: str
    key: str | None


class Intake:
    """The thread, and what it hands back. running: where parsed batches are queued. limits: what a batch may be."""

    def __init__(self, running: Any, limits: Any) -> None:
        self._running, self._limits = running, limits
        self._given: SimpleQueue[_Given | None] = SimpleQueue()
        self._near: deque[_Given] = deque()
        self._answered: deque[tuple[Any, Any, Exception | None]] = deque()
        self._woken, self._open = False, 0
        self._here_from, self._quick = 0.0, set[bytes]()
        self._thread = threading.Thread(target=self._parse_all, name="service-parse", daemon=True)

    def start(self) -> None:
        """Start the thread; receipts are handed back on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def settled(self, seconds: float) -> None:
        """Return when whoever gave a batch in has an answer, after so many seconds at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open:
                    await asyncio.sleep(0.01)

    def stop(self) -> None:
        """End the thread once it has parsed what was given."""
        self._given.put(None)

    async def take(self, body: Any, media: str, key: str | None) -> Any:
        """The stream_dr.Receipt of a batch, once it is durable. Raises what refuses it."""
        waiter = asyncio.get_running_loop().create_future()
        self.put(waiter, body, media, key)
        try:
            return await waiter
        finally:
            del waiter, body  # the traceback of what it raised holds this frame

    def put(self, waiter: Any, body: Any, media: str, key: str | None) -> None:
        """Take a batch in. waiter: given the Receipt, or what refuses the batch, by `set_result` or `set_exception` on the
        event loop, later, unless it is `done` by then."""
        given = _Given(waiter, body, media, key)
        self._open += 1
        if len(body) <= AT_ONCE[media] and time.monotonic() >= self._here_from and _schema(given) in self._quick:
            if not self._near:
                self._loop.call_soon(self._parse_next)
            self._near.append(given)
        else:
            self._given.put(given)

    def _parse_all(self) -> None:
        while (given := self._given.get()) is not None:
            if given.waiter.done():
                self._answer(given.waiter, None, None)
            else:
                self._parse_there(given)
            del given  # it holds the body until the next one comes

    def give_way(self) -> None:
        """Somebody asks for projections: keep the event loop free for a while."""
        self._leave_to_thread(WAY)

    def _leave_to_thread(self, seconds: float) -> None:
        self._here_from = max(self._here_from, time.monotonic() + seconds)

    def _parse_next(self) -> None:
        """Parse one body; the loop comes round before the next."""
        given = self._near.popleft()
        if self._near:
            self._loop.call_soon(self._parse_next)
        if given.waiter.done():
            self._open -= 1
        else:
            self._parse_here(given)

    def _parse_here(self, given: _Given) -> None:
        begun = time.thread_time()
        self._parse(given)
        if time.thread_time() - begun > SLOW:
            self._quick.discard(_schema(given))
            self._leave_to_thread(REST)

    def _parse_there(self, given: _Given) -> None:
        begun = time.thread_time()
        self._parse(given)
        if time.thread_time() - begun <= QUICK and len(given.body) <= AT_ONCE[given.media]:
            self._remember(_schema(given))

    def _remember(self, schema: bytes) -> None:
        if len(schema) <= LONGEST:
            if len(self._quick) >= KNOWN:
                self._quick.clear()
            self._quick.add(schema)

    def _parse(self, given: _Given) -> None:
        try:
            draft = stream_dr.rows_draft(given.body, given.media, given.key, self._limits)
            self._running.submit(draft).add_done_callback(partial(self._taken, given.waiter))
        except stream_dr.errors.StreamDRError as e:
            # its frames hold the body, and the waiter that will hold the error
            self._answer(given.waiter, None, stream_dr.errors.without_frames(e))
        except Exception as e:
            self._answer(given.waiter, None, e)

    def _taken(self, waiter: Any, done: "Future[Any]") -> None:
        error: Any = done.exception()
        self._answer(waiter, None if error is not None else done.result(), error)

    def _answer(self, waiter: Any, receipt: Any, error: Exception | None) -> None:
        self._answered.append((waiter, receipt, error))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._hand_back)

    def _hand_back(self) -> None:
        self._woken = False  # first: what is answered from now on wakes the loop again, if it is not met below
        while self._answered:
            waiter, receipt, error = self._answered.popleft()
            self._open -= 1
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(receipt)


def _schema(given: _Given) -> bytes:
    """What a body begins with: an Arrow stream's first message, of whatever length up to LONGEST it says it has."""
    if given.media == "json":
        return b""
    return bytes(given.body[: 8 + min(LONGEST, int.from_bytes(given.body[4:8], "little"))])
