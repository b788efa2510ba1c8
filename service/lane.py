"""Lane: batches (POST /partial_fit) and one-row queries (GET /transform) on the shortest way from their connection and back.

A batch whose head says all there is to know of it (its length, AT_ONCE at most, a type that is read, each header once, no
parameters) and that may come in does not pass through the application: no task, no middleware, no request object. Nor does
a query without a body, which is answered as soon as what was read with it is parsed. Everything else is the application's,
which describes both routes in /docs and answers every other case of them: batches that are refused by their head, chunked
and larger bodies, clients that wait to be told to go on, or that do not read their answers. Both ask the same functions who
may come in, read bodies with the same intake, project by the same function and answer in the same words; the same counters
count both.

Remembered a batch: its connection and request, the bytes it holds (bodies.py), its idempotency key; a timer until its body
is there.

Cost: a batch took 0.2 ms of the event loop less than through the application, of 1.5 ms, and 5 to 14 % more rows came in
(`python benchmarks/service.py ingest --estimator lda`); a query under full ingest took 1.3 times as long as a bare route,
and 1.8 times through the application (`python benchmarks/service.py latency`).

Why this way: batches come by the hundred a second, on the one thread that also answers queries, while what learns and what
writes them down wants the interpreter, too. Each time the loop goes to the system for what is next it has to get the
interpreter back from them.
"""

import time
from typing import Any

import orjson
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service import auth, problems, wire
from service.bodies import too_late
from service.problems import Problem
from service.routes.learn import told
from service.routes.project import one_row

PATH, QUERY = "/partial_fit", "/transform"


class Lane:
    """The lane of an application, whose `state` it uses."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def batch(self, http: Any, cycle: RequestResponseCycle, length: int) -> "Batch | None":
        """The batch that a request is, its body of `length` bytes to come; None where it is the application's."""
        scope: Any = cycle.scope
        if scope["path"] != PATH or scope["method"] != "POST" or scope["query_string"] or not length:
            return None
        headers = _plain(http, cycle)
        if headers is None:
            return None
        try:
            auth.check(self.state.settings, headers, "write")
            media, key = wire.media(headers), wire.idempotency_key(headers)
            self.state.bounds.admit(PATH, dict(scope["headers"]))
        except Problem:
            return None
        return Batch(self, http, cycle, media, key, length)

    def query(self, http: Any, cycle: RequestResponseCycle) -> "Query | None":
        """The query that a request is; None where it is the application's."""
        scope: Any = cycle.scope
        if scope["path"] != QUERY or scope["method"] != "GET":
            return None
        headers = _plain(http, cycle)
        if headers is None or "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            return None
        return Query(self.state, http, cycle, headers)


def _plain(http: Any, cycle: RequestResponseCycle) -> dict[str, str] | None:
    """A request's headers where each is there once and nobody waits: neither the client, to be told to go on, nor the
    service, for a client that does not read its answers."""
    given: Any = cycle.scope["headers"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in given}
    waits = cycle.waiting_for_100_continue or http.flow.write_paused
    return None if waits or len(headers) < len(given) else headers


class Query:
    """One row to be projected."""

    def __init__(self, state: Any, http: Any, cycle: RequestResponseCycle, headers: dict[str, str]) -> None:
        self._state, self._http, self._cycle, self._headers = state, http, cycle, headers
        self._begun = time.perf_counter()

    def answer(self) -> None:
        """Project it and answer."""
        scope: Any = self._cycle.scope
        try:
            response = one_row(self._state, self._headers, scope["query_string"])
        except Exception as e:
            response = problems.of(e)
        self._state.metrics.observe("GET", QUERY, response.status_code, time.perf_counter() - self._begun)
        self._http.answer(self._cycle, response.status_code, *_parts(response))


def _parts(response: Response) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """An answer's headers, but for its length, and its body."""
    return [pair for pair in response.raw_headers if pair[0] != b"content-length"], bytes(response.body)


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
        """The body is there; perhaps too late. Of a client that has sent more since, which is no HTTP, it is not taken."""
        self._timer.cancel()
        if self._answered:
            return
        if self._cycle.disconnected:
            self._end(400)
        else:
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
        self._answer(answer.status_code, *_parts(answer))

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
