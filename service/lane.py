"""Lane: POST /partial_fit on the shortest way from its connection to the intake, and back.

A batch whose head says all there is to know of it (its length, AT_ONCE at most, a type that is read, each header once, no
query) and that may come in does not pass through the application: no task, no middleware, no request object. Everything
else is the application's, which describes the route in /docs and answers every other case of it: all that is refused by its
head, chunked and larger bodies, clients that wait to be told to go on. Both ask the same functions who may come in, read
bodies with the same intake and answer in the same words; the same counters count both.

Remembered a batch: its connection and request, the bytes it holds (bodies.py), its idempotency key; a timer until its body
is there.

Cost: a batch took 0.2 ms of the event loop less than through the application, of 1.5 ms, and 5 to 14 % more rows came in
(`python benchmarks/service.py ingest --estimator lda`).

Why this way: batches come by the hundred a second, on the one thread that also answers queries, while what learns and what
writes them down wants the interpreter, too.
"""

import time
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service import auth, problems, wire
from service.bodies import too_late
from service.problems import Problem
from service.routes.learn import told

PATH = "/partial_fit"


class Lane:
    """The lane of an application, whose state it uses."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def batch(self, http: Any, cycle: RequestResponseCycle, length: int) -> "Batch | None":
        """The batch that a request is, its body of `length` bytes to come; None where it is the application's."""
        scope: Any = cycle.scope
        if scope["path"] != PATH or scope["method"] != "POST" or scope["query_string"]:
            return None
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]) or cycle.waiting_for_100_continue or not length:
            return None
        if http.flow.write_paused:  # the client does not read its answers: the application waits until it does
            return None
        try:
            media, key = self._checked(
                {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
            )
            self.state.bounds.admit(PATH, headers)
        except Problem:
            return None
        return Batch(self, http, cycle, media, key, length)

    def _checked(self, headers: dict[str, str]) -> tuple[str, str | None]:
        auth.check(self.state.settings, headers, "write")
        return wire.media(headers), wire.idempotency_key(headers)


class Batch:
    """One batch on its way; to the intake, who waits for a receipt."""

    def __init__(
        self, lane: Lane, http: Any, cycle: RequestResponseCycle, media: str, key: str | None, length: int
    ) -> None:
        self._state, self._http, self._cycle = lane.state, http, cycle
        self._media, self._key, self._length = media, key, length
        self._begun, self._answered = time.perf_counter(), False
        self._timer = http.loop.call_later(self._state.settings.body_timeout, self._late)

    def came(self, body: bytes | memoryview) -> None:
        """The body is there. Of a client that has sent more since, which is no HTTP, it is not taken."""
        self._timer.cancel()
        if self._cycle.disconnected:
            self._end(400)
        elif not self._answered:
            self._state.intake.put(self, body, self._media, self._key)

    def gone(self) -> None:
        """The client went away before the body was whole."""
        self._timer.cancel()
        self._end(400)

    def done(self) -> bool:
        """Whether it is answered."""
        return self._answered

    def set_result(self, receipt: Any) -> None:
        """It is durable."""
        self._state.metrics.learned(receipt)
        self._answer(200, [(b"content-type", wire.JSON.encode())], orjson.dumps(told(receipt)))

    def set_exception(self, error: Exception) -> None:
        """It is refused, or has failed."""
        answer = problems.of(error)
        headers = [pair for pair in answer.raw_headers if pair[0] != b"content-length"]
        self._answer(answer.status_code, headers, bytes(answer.body))

    def _late(self) -> None:
        self._cycle.keep_alive = False
        self.set_exception(too_late(self._state.settings))

    def _answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self._end(status)
        self._http.answer(self._cycle, status, headers, body)

    def _end(self, status: int) -> None:
        self._answered = True
        self._state.bounds.bytes -= self._length
        self._state.metrics.observe("POST", PATH, status, time.perf_counter() - self._begun)
