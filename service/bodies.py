"""Bodies: what may come in, how much of it, and for how long; decided before any route sees a byte.

A middleware around all routes, and bounds that the lane of batches (lane.py) asks, too. A body of a type no route reads is
415, one declared too long is 413 before it is read, one that turns out too long (chunked) is 413 at the byte that is too
many, one that does not arrive in time is 408, and one for which there is no memory left just now is 429. Refusing costs no
memory; the rest of a refused body is read and dropped for a short while, so that a client that is still sending gets to see
the answer.

Why this way: a route cannot forget the bound, and the sum of all bodies held is known.
"""

import asyncio
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import problems
from service.problems import Problem
from service.settings import Settings

ARROW = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file")
JSON = "application/json"
ARROW_PATHS = ("/partial_fit", "/transform")
LINGER = 2.0
"""Seconds for which the rest of a refused body is dropped before the connection is closed."""


class Limit(NamedTuple):
    """Most bytes a body may have, and the setting that says so."""

    bytes: int
    setting: str


class Bounds:
    """What may come in, and `bytes`, of all the bodies that are in memory now."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.bytes = settings, 0
        self._largest = {media: largest(media, settings) for media in (JSON, *ARROW)}

    def admit(self, path: str, headers: dict[bytes, bytes]) -> tuple[Limit, int]:
        """How large this body may be, and the bytes it says it has, which are held from now on. Raises Problem."""
        media = media_type(headers.get(b"content-type", b"").decode("latin-1"))
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
        wanted = (JSON, *ARROW) if path in ARROW_PATHS else (JSON,)
        if media not in wanted or encoding != "identity":
            raise Problem(
                "unsupported_media_type",
                f"The body is {media or 'of no stated type'}, encoding {encoding}; send {' or '.join(wanted)}, "
                "not compressed as a whole.",
            )
        limit = self._largest[media]
        declared = _length(headers)
        if declared > limit.bytes:
            raise too_large(limit, declared)
        self.hold(declared)
        return limit, declared

    def hold(self, more: int) -> None:
        """Count that many bytes more as held. Raises Problem `overloaded` when they would not fit."""
        if self.bytes + more > self.settings.max_queue_bytes:
            raise Problem(
                "overloaded",
                f"Request bodies of {self.bytes:,} bytes are being worked on, of {self.settings.max_queue_bytes:,} "
                "allowed; send this one again shortly.",
                {"Retry-After": "1"},
            )
        self.bytes += more


class Bodies:
    """The middleware. bounds: those of all ways in."""

    def __init__(self, app: ASGIApp, bounds: Bounds) -> None:
        self.app, self.bounds = app, bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request within the bounds."""
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if not _has_body(headers):
            await self.app(scope, receive, send)
            return
        try:
            limit, declared = self.bounds.admit(scope["path"], headers)
        except Problem as problem:
            await _refuse(problem, receive, send)
            return
        bounded = _Bounded(self.bounds, limit, declared, receive, send)
        try:
            await self.app(scope, bounded.receive, bounded.send)
        finally:
            self.bounds.bytes -= bounded.bytes


class _Bounded:
    """One request's receive and send; `bytes` is how many the request holds, from the first those it declared."""

    def __init__(self, bounds: Bounds, limit: Limit, declared: int, receive: Receive, send: Send) -> None:
        self._bounds, self._limit, self._receive, self._send = bounds, limit, receive, send
        self._deadline = asyncio.get_running_loop().time() + bounds.settings.body_timeout
        self.bytes, self._come = declared, 0
        self._complete = self._refused = False

    async def receive(self) -> Message:
        """The next piece of the body, or a disconnect once the request was refused."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
            self._count(message)
        except TimeoutError:
            return await self._stop(too_late(self._bounds.settings))
        except Problem as problem:
            return await self._stop(problem)
        return message

    async def send(self, message: Message) -> None:
        """Pass the route's answer on, unless the request was refused meanwhile."""
        if not self._refused:
            await self._send(message)

    def _count(self, message: Message) -> None:
        self._come += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._come > self._limit.bytes:
            raise too_large(self._limit, None)
        if self._come > self.bytes:
            self._bounds.hold(self._come - self.bytes)
            self.bytes = self._come

    async def _stop(self, problem: Problem) -> Message:
        self._refused = True
        await _refuse(problem, self._receive, self._send, drain=problem.code != "request_timeout")
        return {"type": "http.disconnect"}


def media_type(header: str) -> str:
    """A Content-Type without its parameters, in lower case."""
    return header.partition(";")[0].strip().lower()


def largest(media: str, settings: Settings) -> Limit:
    """How large a body of a type may be. What could never be held with all others gone is too large, too."""
    own = "max_json_bytes" if media == JSON else "max_body_bytes"
    return min(Limit(getattr(settings, name), name) for name in (own, "max_queue_bytes"))


def too_large(limit: Limit, declared: int | None) -> Problem:
    """The 413."""
    given = f"{declared:,}" if declared is not None else f"more than {limit.bytes:,}"
    return Problem(
        "body_too_large",
        f"The body has {given} bytes; at most {limit.bytes:,} are taken ({limit.setting}). Send fewer rows a batch.",
        limit=limit.bytes,
    )


def too_late(settings: Settings) -> Problem:
    """The 408."""
    return Problem("request_timeout", f"The body did not arrive within {settings.body_timeout:g} seconds.")


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _length(headers: dict[bytes, bytes]) -> int:
    told = headers.get(b"content-length", b"0")
    if not told.isdigit():
        raise Problem("bad_request", "Content-Length is not a number.")
    return int(told)


async def _refuse(problem: Problem, receive: Receive, send: Send, drain: bool = True) -> None:
    """Answer at once; then read and drop what still comes, for a short while."""
    answer = problems.of(problem)
    headers: list[Any] = [*answer.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(answer.body), "more_body": True})
    if drain:
        await _drop(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drop(receive: Receive) -> None:
    try:
        async with asyncio.timeout(LINGER):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        return
