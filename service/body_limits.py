"""Body limits: which bodies may come in, how large, how much of them at once, and for how long.

A middleware around all routes. A body of a type that no route reads is 415, one declared too long is 413 before it is read,
one that turns out too long (chunked) is 413 at the byte that is too many, one that does not arrive in time is 408, and one
for which there is no memory left just now is 429. Bytes count as held from the head that declares them, or from their
arrival, until the request is answered: that bounds what waits to be parsed and written, too.

A body that was packed as a whole (Content-Encoding) is unpacked here: routes, idempotency keys and the log know plain bytes
alone. Its packed and its plain bytes are held, and the limit is asked after each step of unpacking.
"""

import asyncio
import functools
from typing import Literal, NamedTuple

import pyarrow as pa
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.media import ARROW, ARROW_STREAM, JSON, SAVED
from service.problems import Problem
from service.settings import Settings

ARROW_PATHS = ("/partial_fit", "/transform", "/predict")

PACKINGS = ("gzip", "zstd")
"""Content encodings that are unpacked, as pyarrow calls them, too."""

STEP = 1 << 20
"""Bytes unpacked at once."""


class Limit(NamedTuple):
    """Most bytes a body may have, the setting that says so, and what to do about more."""

    bytes: int
    setting: str
    advice: str


class Held:
    """`bytes` of the bodies that are in memory now, of at most `most`."""

    def __init__(self, most: int) -> None:
        self.bytes, self._most = 0, most

    def add(self, more: int, own: int = 0) -> None:
        """Count that many bytes more, of a body of which `own` are counted. Raises Problem `overloaded` when they would not
        fit, and `body_too_large` when they would not with all other bodies gone."""
        if own + more > self._most:
            raise _too_large(Limit(self._most, "max_queue_bytes", "Send fewer rows a batch."), f"{own + more:,}")
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
        media, packing = _form(scope, headers)
        body = _Body(
            self.held,
            largest(media, scope["path"], self.settings),
            _length(headers),
            self.settings.body_timeout,
            receive,
        )
        plain = functools.partial(_unpacked, body, packing) if packing in PACKINGS else body.receive
        try:
            await self.app(scope, plain, send)
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
        self.bytes, self._come, self._plain, self._complete = declared, 0, 0, False

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
            self._hold(self._come - self.bytes)
        return message

    def unpack(self, more: int) -> None:
        """Count so many bytes of what it unpacks to. Raises Problem."""
        self._plain += more
        if self._plain > self._limit.bytes:
            raise _too_large(self._limit, f"more than {self._limit.bytes:,} unpacked")
        self._hold(more)

    def _hold(self, more: int) -> None:
        self._held.add(more, self.bytes)
        self.bytes += more


async def _unpacked(body: _Body, packing: str) -> Message:
    """A whole body as it was before it was packed. Raises Problem."""
    packed, more = pa.BufferOutputStream(), True
    while more:
        message = await body.receive()
        packed.write(message.get("body", b""))
        more = message.get("more_body", False)
    if message["type"] == "http.disconnect":
        return message

    # In a thread, a step at a time: the event loop goes on, and what would unpack to gigabytes is refused early.
    stream, pieces = pa.CompressedInputStream(pa.BufferReader(packed.getvalue()), packing), []
    try:
        while piece := await asyncio.to_thread(stream.read, STEP):
            body.unpack(len(piece))
            pieces.append(piece)
    except OSError as e:
        raise Problem(
            "malformed_input",
            f"The body is said to be {packing} (Content-Encoding), and cannot be unpacked: {e}. Send it whole, and nothing "
            "after it.",
        ) from None
    return {**message, "body": b"".join(pieces)}


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


def largest(media: str, path: str, settings: Settings) -> Limit:
    """How large a body of a type may be, packed and plain."""
    if media != JSON:
        return Limit(settings.max_body_bytes, "max_body_bytes", "Send fewer rows a batch.")
    if path not in ARROW_PATHS:
        return Limit(settings.max_json_bytes, "max_json_bytes", "Send less a request.")

    arrow = (
        f"as an Arrow stream ({ARROW_STREAM}), of which {settings.max_body_bytes:,} bytes are taken (max_body_bytes)"
    )
    return Limit(settings.max_json_bytes, "max_json_bytes", f"Send the rows {arrow}, or fewer of them.")


def _form(scope: Scope, headers: Headers) -> tuple[str, str]:
    """The body's media type, and how it is packed. Raises Problem `unsupported_media_type`."""
    media = media_type(headers.get("content-type", ""))
    packing = ", ".join(headers.getlist("content-encoding")).strip().lower() or "identity"
    wanted = (JSON, *(SAVED if scope["method"] == "PUT" else ARROW if scope["path"] in ARROW_PATHS else ()))
    if media not in wanted or packing not in ("identity", *PACKINGS):
        raise Problem(
            "unsupported_media_type",
            f"The body is {media or 'of no stated type'}, encoding {packing}; send {' or '.join(wanted)}, as it is or "
            f"with Content-Encoding {' or '.join(PACKINGS)}.",
            {"Accept-Encoding": ", ".join(PACKINGS)},
        )
    return media, packing


def _length(headers: Headers) -> int:
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise Problem("bad_request", "Content-Length is not a number.")
    return int(declared)


def _too_large(limit: Limit, given: str) -> Problem:
    return Problem(
        "body_too_large",
        f"The body has {given} bytes; at most {limit.bytes:,} are taken ({limit.setting}). {limit.advice}",
        limit=limit.bytes,
    )
