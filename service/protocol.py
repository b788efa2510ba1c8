"""Protocol: HTTP/1.1 as uvicorn speaks it, with bodies handed to their routes whole.

uvicorn wakes a request for every piece of its body that the socket gives, and copies each into one buffer and out of it
again. Here a body of stated length, of WORTH bytes to AT_ONCE, is received into the memory where it stays (buffers.py):
what came with the request's head is put first, the rest is read behind it, past the parser, which is made anew for the
next request. Other bodies are kept in pieces as they come until they are complete, or AT_ONCE bytes (HEAD bytes where no
length is stated) are there, and joined once. Once the answer has begun, what still comes of a body is dropped.

Cost: HEAD bytes a thread, shared by all connections; AT_ONCE bytes a connection whose body is under way, which bodies.py
has counted and admitted, of which only what has come takes memory. With uvicorn's own way 380 batches of 1 MB a second
came in, with this one 510 (`python benchmarks/service.py ingest --rows 200000`).

Why this way: the grammar, pipelining and keep-alive stay uvicorn's; only what meets a body's bytes is ours, and the
bounds of connection.py.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from httptools import HttpRequestParser
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.buffers import Buffers
from service.connection import Connection
from service.lane import Batch, Lane, Query

AT_ONCE = 2 << 20
"""Bytes of a request's body that are read before its route takes them."""

WORTH = 64 << 10
"""Bytes of the shortest body that is received into its place."""

HEAD = 64 << 10
"""Bytes that are read at once where no body is received into its place."""

_buffers = Buffers()


class _Incoming(threading.local):
    """What the thread's event loop reads sockets into."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(HEAD))


_incoming = _Incoming()


class _Cycle(RequestResponseCycle):
    """A request whose body may be received into its place, and is dropped once its answer begins."""

    whole: memoryview | None = None
    http: "_Http"

    async def send(self, message: Any) -> None:
        """Send a part of the answer."""
        if not self.response_started:
            self.http.drop(self)
        await super().send(message)

    async def receive(self) -> Any:
        """The next message; a body that is in its place is handed on as it lies there."""
        message: Any = await super().receive()
        if message["type"] == "http.request" and self.whole is not None:
            message["body"], self.whole = self.whole, None
        return message


class _Http(Connection):
    """One connection's requests.

    What is known of the body under way: `_length`, as stated, where it may be received into its place; `_ahead`, the bytes
    of it that are read before its route takes them; `_pieces` of `_size` bytes that the parser handed on; `_left`, the bytes
    that will come past the parser, to `_place`'s end or to be dropped; `_batch`, who gets it where the application does not.
    `_stated`, while a request is begun: its body's length, where that is known and AT_ONCE at most.
    """

    def __init__(self, lane: Lane, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lane, self._stated = lane, -1
        self._batch: Batch | None = None
        self._query: Query | None = None
        self._pieces: list[bytes] = []
        self._length = self._size = self._left = 0
        self._ahead = HEAD
        self._place: memoryview | None = None

    def buffer(self) -> memoryview:
        """Where to put what is read next."""
        if self._place is not None:
            return self._place[-self._left :]
        return _incoming.buffer[: self._left or HEAD]

    def updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self._left:
            self._past_parser(nbytes)
        else:
            self.parse(_incoming.buffer[:nbytes])
            if self._query is not None:
                query, self._query = self._query, None
                query.answer()
            if self._length > self._size and not self.cycle.response_started:
                self._go_past_parser()
        self.look_after()

    def on_headers_complete(self) -> None:
        """The parser met the end of a request's head."""
        upgrade = self.parser.should_upgrade()
        length = 0 if upgrade else _stated_length(self.headers)
        self._stated = -1 if upgrade or length > AT_ONCE else length
        super().on_headers_complete()
        self._stated = -1
        self.cycle.__class__ = _Cycle  # before its task begins
        self.cycle.http = self  # type: ignore[attr-defined]
        if upgrade:
            self.cycle.keep_alive = False  # its body is not read, and must not pass for the next request
            return
        self._ahead = AT_ONCE if length else HEAD
        self._length = length if WORTH <= length <= AT_ONCE else 0

    def on_body(self, body: bytes) -> None:
        """The parser met a piece of the body."""
        self.body_came(whole=False)
        if self.cycle.response_started:
            return
        self._pieces.append(body)
        self._size += len(body)
        if self._size > self._ahead:
            self.flow.pause_reading()
            self._hand_on()

    def on_message_complete(self) -> None:
        """The parser met the end of the request."""
        self.body_came(whole=True)
        if not self.cycle.response_complete:
            self.cycle.more_body = False
        self._hand_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self._place = None
        if self._batch is not None:
            self._batch.gone()
            self._batch = None

    def drop(self, cycle: RequestResponseCycle) -> None:
        """Keep nothing of a request's body any more."""
        if cycle is self.cycle:
            self._place, self._pieces = None, []

    def answer(
        self, cycle: RequestResponseCycle, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Answer a batch, whether its body is there or not."""
        self._batch = None
        self.drop(cycle)
        super().answer(cycle, status, headers, body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin a request: a batch or a query whose head was just met goes its own way."""
        if self._stated >= 0 and app is self._app:
            self._batch = self._lane.batch(self, cycle, self._stated)
            self._query = self._lane.query(self, cycle)
        if self._batch is None and self._query is None:
            super()._start_asgi_task(cycle, app)

    def _hand_on(self) -> None:
        """Give the request what was read of its body, and wake it."""
        cycle, pieces = self.cycle, self._begun()
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self.loop.call_soon(batch.came, b"".join(pieces))  # once the parser has met all that was read
        elif not cycle.response_complete:
            cycle.body = b"".join([cycle.body, *pieces] if cycle.body else pieces)  # type: ignore[assignment]
            cycle.message_event.set()

    def _begun(self) -> list[bytes]:
        """What the parser handed on of the body, which is kept here no longer."""
        pieces = self._pieces
        self._pieces, self._size, self._length = [], 0, 0
        return pieces

    def _go_past_parser(self) -> None:
        """Receive the rest of the body into its place."""
        self._place = _buffers.take(self._length)
        self._left = self._length - self._size
        come = b"".join(self._begun())
        self._place[: len(come)] = come

    def _past_parser(self, nbytes: int) -> None:
        """What was read lies in its place, or is to be dropped."""
        if not self.cycle.response_complete:
            self._unset_keepalive_if_required()
        self._left -= nbytes
        if not self._left:
            self._end_body()

    def _end_body(self) -> None:
        """Give the request its body, if it still wants it, and expect the next request."""
        self.body_came(whole=True)
        place, self._place = self._place, None
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        if self._batch is not None and place is not None:
            batch, self._batch = self._batch, None
            batch.came(place.toreadonly())
        elif not self.cycle.response_complete:
            self.cycle.whole = None if place is None else place.toreadonly()  # type: ignore[attr-defined]
            self.cycle.more_body = False
            self.cycle.message_event.set()


def _stated_length(headers: list[tuple[bytes, bytes]]) -> int:
    """A body's length where its head states it, once, in digits; else 0."""
    if any(name == b"transfer-encoding" for name, _ in headers):
        return 0
    lengths = [value for name, value in headers if name == b"content-length"]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else 0


class Protocol(asyncio.BufferedProtocol):
    """One connection, to its transport; takes uvicorn's arguments.

    Not uvicorn's class itself: that one is an asyncio.Protocol, to which transports hand bytes of their own making.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._http = _Http(*args, **kwargs)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._http.connection_made(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._http.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport puts what it reads next."""
        return self._http.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """The transport has read."""
        self._http.updated(nbytes)

    def eof_received(self) -> None:
        """The client sends no more."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """The transport has enough to write."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """The transport can take more."""
        self._http.resume_writing()
