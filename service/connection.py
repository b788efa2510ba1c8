"""Connection: uvicorn's handling of one HTTP/1.1 connection, with the bounds that it leaves open.

A request's head, or what a chunked body has between two chunks, is BESIDE bytes at most: without that, a client that needs
no token could send one without end, which was kept, and copied with every piece of it. A head that does not come, and the
rest of a body whose answer is complete, have PATIENCE seconds. A client that goes away is told to every request that came
over its connection, not to the last alone. What is no HTTP, and a request where there are too many connections, is answered
as any other error.

Cost: two numbers a connection, and a timer while a head, or the rest of an answered body, is awaited.

Why this way: a request's bounds hold before any route or middleware knows of it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service import problems

BESIDE = 128 << 10
"""Bytes that a request may have beside its body: its head, or what is between two of its chunks."""

PATIENCE = 30.0
"""Seconds for a request's head, from the connection or its first byte on, and for the rest of a body that is dropped."""

LEFT = 2
"""Seconds that requests have to end in once they lost their connection and the service stops."""


class Connection(HttpToolsProtocol):
    """One connection's requests.

    Of the request under way: `_coming`, the part of it that is to come; `_beside`, bytes that the parser took since there
    was a piece of a body. `_unanswered`: the requests that have come and were not answered when the last of them came.
    `_timer` closes the connection.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._app, self._most, self.limit_concurrency = self.app, self.limit_concurrency, None
        self._coming: Literal["head", "body"] | None = None
        self._beside = 0
        self._unanswered: list[RequestResponseCycle] = []
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._await(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for every request that came over it."""
        super().connection_lost(exc)
        self._await(False)
        self._give_up()

    def parse(self, data: memoryview) -> None:
        """Give the parser what was read."""
        self._beside += len(data)
        self.data_received(data)  # type: ignore[arg-type]  # the parser copies what it hands on
        if self._beside > BESIDE:
            self._end("head_too_large", f"The request has more than {BESIDE:,} bytes beside its body.")

    def look_after(self) -> None:
        """After what was read: close the connection in PATIENCE seconds if what is to come does not, or not any more."""
        rest = self._coming == "body" and self.cycle.response_complete
        self._await(self._coming == "head" or rest or self._only_lines())

    def body_came(self, whole: bool) -> None:
        """There was a piece of a body, or its end."""
        self._beside = 0
        if whole:
            self._coming = None

    def answer(
        self, cycle: RequestResponseCycle, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Answer a request that the application was not given, if there is still somebody to answer."""
        if cycle.disconnected or self.transport.is_closing():
            return
        cycle.response_started = cycle.response_complete = True
        closing = () if cycle.keep_alive else ((b"connection", b"close"),)
        self.transport.write(_written(status, (*cycle.default_headers, *headers, *closing), body))
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def on_message_begin(self) -> None:
        """The parser met a request."""
        super().on_message_begin()
        self._coming = "head"

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser met a header; what follows a chunked body is none."""
        if self._coming == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser met the end of a request's head."""
        full = self._most is not None and len(self.connections) > self._most
        self.app = _full if full else self._app  # type: ignore[assignment]
        super().on_headers_complete()
        self._coming = "body"
        self._unanswered = [*self._waiting(), self.cycle]

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser does not take."""
        self._end(
            "bad_request",
            "The request is not HTTP/1.1, or its address has more than 65,535 bytes (long rows go by POST /transform).",
        )

    def _only_lines(self) -> bool:
        """Whether nothing but empty lines came since the last answer: they end its keep-alive, and begin no request."""
        return self._coming is None and self.timeout_keep_alive_task is None and not self._waiting()

    def _await(self, something: bool) -> None:
        if something and self._timer is None:
            self._timer = self.loop.call_later(PATIENCE, self._late)
        elif not something and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._waiting():  # while they wait, nothing may have been read
            self._await(True)
        else:
            self.transport.close()

    def _end(self, code: str, detail: str) -> None:
        """Close the connection; say why, unless an answer has begun or is due to another request."""
        if self.transport.is_closing():
            return
        begun = self._coming == "body"  # and is the last one that has come
        others = [cycle for cycle in self._waiting() if not begun or cycle is not self.cycle]
        if not others and not (begun and self.cycle.response_started):
            self.transport.write(_answer(code, detail))
        self._give_up()
        self.transport.close()

    def _give_up(self) -> None:
        for cycle in self._waiting():
            cycle.disconnected = True
            cycle.message_event.set()

    def _waiting(self) -> list[RequestResponseCycle]:
        return [cycle for cycle in self._unanswered if not cycle.response_complete]


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    """The application where there are too many connections."""
    detail = "Too many connections are open; close some, or come again shortly."
    answer = problems.response("not_ready", detail, headers={"Retry-After": "1", "Connection": "close"})
    await answer(scope, receive, send)


def _answer(code: str, detail: str) -> bytes:
    """A problem as the last answer of a connection."""
    headers = ((b"content-type", problems.MEDIA_TYPE.encode()), (b"connection", b"close"))
    return _written(problems.STATUS[code], headers, problems.body(code, detail))


def _written(status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """An answer as it is sent."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (STATUS_LINE[status], lines, len(body), body)
