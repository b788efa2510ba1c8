"""Protocol: HTTP/1.1 as uvicorn speaks it, with bodies handed to their routes whole.

uvicorn wakes a request for every piece of its body that the socket gives, and copies each into one buffer and out of it
again. Here the pieces are kept as they come until the body is complete, or longer than READ_AHEAD, and joined once. The
socket is read into one buffer, shared by all connections of a thread: what was read is parsed before anything else is read.

Cost: a body is copied twice after it was read, and wakes its request once; READ_AHEAD bytes a thread, and as many a
connection whose body is under way. With uvicorn's own way 345 batches of 1 MB a second came in, with this one 390
(`python benchmarks/service.py ingest`).

Why this way: parsing, pipelining, keep-alive and time limits stay uvicorn's; only the two callbacks that meet a body's bytes
are ours.
"""

import asyncio
import threading
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

READ_AHEAD = 1 << 20
"""Bytes of a request's body that are read before its route takes them."""


class _Incoming(threading.local):
    """What the thread's event loop reads sockets into."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_AHEAD))


_incoming = _Incoming()


class Protocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pieces: list[bytes] = []
        self._size = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport puts what it reads next."""
        return _incoming.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read; the parser copies what it hands on."""
        self.data_received(_incoming.buffer[:nbytes])  # type: ignore[arg-type]  # any buffer will do

    def on_body(self, body: bytes) -> None:
        """The parser met a piece of the body."""
        if self.cycle.response_complete:
            return
        self._pieces.append(body)
        self._size += len(body)
        if self._size > READ_AHEAD:
            self.flow.pause_reading()
            self._hand_on()

    def on_message_complete(self) -> None:
        """The parser met the end of the request."""
        if not self.cycle.response_complete:
            self.cycle.more_body = False
        self._hand_on()

    def _hand_on(self) -> None:
        """Give the request what was read of its body, and wake it."""
        cycle, pieces = self.cycle, self._pieces
        self._pieces, self._size = [], 0
        if not cycle.response_complete:
            cycle.body = b"".join([cycle.body, *pieces] if cycle.body else pieces)  # type: ignore[assignment]
            cycle.message_event.set()
