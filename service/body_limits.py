"""Body limits: which bodies may come in, how large, how much of them at once, and for how long.

A middleware around all routes. A body of a type that no route reads is 415, one declared too long is 413 before it is read,
one that turns out too long (chunked) is 413 at the byte that is too many, one that does not arrive in time is 408, and one
for which there is no memory left just now is 429. Bytes count as held from the head that declares them, or from their
arrival, until the request is answered: that bounds what waits to be parsed and written, too.
"""

import asyncio
from typing import Literal, NamedTuple

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.media import ARROW, ARROW_STREAM, JSON, SAVED
from service.problems import Problem
from service.settings import Settings

ARROW_PATHS = ("/partial_fit", "/transform", "/predict")


class Limit(NamedTuple):
    """Most bytes a body may have, and the setting that says so."""

    bytes: int
    setting: str


class Held:
    """`bytes` of the bodies that are in memory now, of at most `most`."""

    def __init__(self, most: int) -> None:
        self.bytes, self._most = 0, most

    def add(self, more: int) -> None:
        """Count that many bytes more. Raises Problem `overloaded` when they would not fit."""
        if self.bytes + more > self._most:
            raise Problem(
                "overloaded",
                f"Request bodies of {self.bytes:,} bytes are being worked on, of {self._most:,} allowed; send this one "
                "again shortly.",
                {"Retry-After": "1"},
            )
        self.bytes += more


class BodyLimits:
    """The middleware. held: the bytes of all bodies."""

    def __init__(self, app: ASGIApp, settings: Settings, held: Held) -> None:
        self.app, self.settings, self.held = app, settings, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request within the limits. Raises Problem."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
            await self.app(scope, receive, send)
            return
        limit = largest(_media(scope, headers), self.settings)
        body = _Body(self.held, limit, _length(headers), self.settings.body_timeout, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            self.held.bytes -= body.bytes


class _Body:
    """One request's body; `bytes` is how many it holds, from the first those it declared."""

    def __init__(self, held: Held, limit: Limit, declared: int, seconds: float, receive: Receive) -> None:
        if declared > limit.bytes:
            raise _too_large(limit, f"{declared:,}")
        held.add(declared)
        self._held, self._limit, self._seconds, self._receive = held, limit, seconds, receive
        self._deadline = asyncio.get_running_loop().time() + seconds
        self.bytes, self._come, self._complete = declared, 0, False

    async def receive(self) -> Message:
        """The next piece of the body. Raises Problem."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not arrive within {self._seconds:g} seconds."
            raise Problem("request_timeout", detail, {"Connection": "close"}) from None
        self._come += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._come > self._limit.bytes:
            raise _too_large(self._limit, f"more than {self._limit.bytes:,}")
        if self._come > self.bytes:
            self._held.add(self._come - self.bytes)
            self.bytes = self._come
        return message


def media_type(header: str) -> str:
    """A Content-Type without its parameters, in lower case."""
    return header.partition(";")[0].strip().lower()


def rows_medium(request: Request) -> Literal["arrow", "json"]:
    """What a body of rows says it is. Raises Problem `unsupported_media_type`."""
    given = media_type(request.headers.get("content-type", ""))
    if given in ARROW:
        return "arrow"
    if given == JSON:
        return "json"
    raise Problem(
        "unsupported_media_type", f"The body is {given or 'of no stated type'}; send {ARROW_STREAM} or {JSON}."
    )


def largest(media: str, settings: Settings) -> Limit:
    """How large a body of a type may be. What could never be held with all others gone is too large, too."""
    own = "max_json_bytes" if media == JSON else "max_body_bytes"
    return min(Limit(getattr(settings, name), name) for name in (own, "max_queue_bytes"))


def _media(scope: Scope, headers: Headers) -> str:
    media = media_type(headers.get("content-type", ""))
    encoding = headers.get("content-encoding", "identity")
    wanted = (JSON, *(SAVED if scope["method"] == "PUT" else ARROW if scope["path"] in ARROW_PATHS else ()))
    if media not in wanted or encoding != "identity":
        raise Problem(
            "unsupported_media_type",
            f"The body is {media or 'of no stated type'}, encoding {encoding}; send {' or '.join(wanted)}, "
            "not compressed as a whole.",
        )
    return media


def _length(headers: Headers) -> int:
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise Problem("bad_request", "Content-Length is not a number.")
    return int(declared)


def _too_large(limit: Limit, given: str) -> Problem:
    return Problem(
        "body_too_large",
        f"The body has {given} bytes; at most {limit.bytes:,} are taken ({limit.setting}). Send fewer rows a batch.",
        limit=limit.bytes,
    )
