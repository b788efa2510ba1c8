"""Guards of all routes: tokens, and limits of request bodies.

If the settings have a write token:

- A request that reads needs the read token or the write token.
- A request that writes needs the write token.
- /livez, /readyz and pages without data need no token.

Without tokens the service listens on loopback only. The service does not encrypt connections. A
proxy can do that (docs/deploy).

A body is refused with one of these statuses:

- 408: the body did not arrive in time.
- 413: the declared or the received size is too large.
- 415: the route does not read the media type, or the Content-Encoding is unknown.
- 429: the bodies of other requests take too much memory now.

A body with a Content-Encoding is decompressed here. Routes, idempotency keys and the log see plain
bytes only.
"""

import asyncio
import functools
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import ServiceError
from service.settings import Settings

PUBLIC_PATHS = ("/", "/livez", "/readyz", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
"""Paths that need no token."""

PUBLIC_PATH_PREFIXES = ("/static-offline-docs/", "/dashboard/")
"""Path prefixes that need no token: files of /docs and /redoc, and files of the dashboard."""

READ_ONLY_POSTS = (("POST", "/transform"), ("POST", "/predict"))
"""Requests (method, path) that only read data, although their method is POST."""

Right = Literal["read", "write"]
"""Right that a request needs: to read data or to write data."""


def refuse_unguarded_host(settings: Settings) -> None:
    """Raise ValueError if other machines can connect without a token."""
    if not settings.loopback and settings.write_token is None:
        raise ValueError(
            f"host {settings.host} can be reached from other machines and no token is set. Set "
            "STREAM_DR_WRITE_TOKEN (and STREAM_DR_READ_TOKEN), or listen on 127.0.0.1."
        )


@dataclass
class AccessMiddleware:
    """Middleware that refuses requests without the right to read or write.

    The middleware runs before any code that reads a body. So a request without the needed right is
    refused before its body is read.
    """

    app: ASGIApp
    settings: Settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Raises ServiceError `unauthorized` or `forbidden`."""
        if scope["type"] == "http":
            right = needed_right(scope["method"], scope["path"])
            if right is not None:
                refuse_without_right(self.settings, Headers(scope=scope), right)
        await self.app(scope, receive, send)


def needed_right(method: str, path: str) -> Right | None:
    """Return the right that a request needs, "read" or "write".

    None if the path needs no token. Unknown paths and methods need "write".
    """
    if path in PUBLIC_PATHS or path.startswith(PUBLIC_PATH_PREFIXES):
        return None
    if method in ("GET", "HEAD") or (method, path) in READ_ONLY_POSTS:
        return "read"
    return "write"


def refuse_without_right(settings: Settings, headers: Headers, right: Right) -> None:
    """Raise ServiceError unless a request's headers give it a right.

    - If the settings have a write token, the headers must have a token for the right. The error is
      `unauthorized`.
    - Without a write token, requests from this machine and from allowed pages have every right.
      For other requests the error is `forbidden`.
    """
    if settings.write_token is None:
        _refuse_foreign_page(headers, settings.cors_origins)
        return

    # Compare the request's token with every accepted token, in constant time.
    # The response time then reveals nothing about the accepted tokens.
    scheme, _, token = headers.get("authorization", "").partition(" ")
    presented = b""  # the request's token
    if scheme.lower() == "bearer":
        presented = token.strip().encode()
    read_token = None
    if right == "read":
        read_token = settings.read_token
    tokens = (settings.write_token, read_token)
    matches = [hmac.compare_digest(presented, t.get_secret_value().encode()) for t in tokens if t is not None]
    if not any(matches):
        raise ServiceError(
            "unauthorized",
            f"A valid {right} token is needed: send the header Authorization: Bearer <token>.",
            {"WWW-Authenticate": 'Bearer realm="stream_dr"'},
        )


def may_write(settings: Settings, headers: Headers) -> bool:
    """Return True if a request's headers give it the right to write."""
    try:
        refuse_without_right(settings, headers, "write")
    except ServiceError:
        return False
    return True


def _refuse_foreign_page(headers: Headers, allowed_origins: tuple[str, ...]) -> None:
    """Refuse a request that a foreign page may have sent.

    Raises ServiceError `forbidden` unless both conditions are true:

    - The Host header names this machine.
    - If there is an Origin header, the header names the service or one of `allowed_origins`.
    """
    # Any web page in a browser of this machine can send requests to a loopback address.
    # Without tokens, only the headers Host and Origin show which requests are the user's own.
    # `origin` is scheme://host:port of the page that sends the request, and `host` is host:port.
    # The hosts are equal for a page of the service itself. Other programs send no Origin header.
    origin = headers.get("origin")
    host = headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host and origin not in allowed_origins:
        raise ServiceError(
            "forbidden",
            f"Without a token only pages of this service itself may call it, and none of {origin}; name it in cors_origins.",
        )
    if not _is_local_host(host):
        raise ServiceError("forbidden", f"Without a token the service answers to local names only, not to {host!r}.")


def _is_local_host(host_header: str) -> bool:
    """Return True if a Host header names this machine.

    It may be empty, "localhost" or a loopback address, with or without a port.
    """
    try:
        name = urlsplit(f"//{host_header}").hostname or "localhost"
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


ARROW_STREAM = "application/vnd.apache.arrow.stream"
OCTET_STREAM = "application/octet-stream"
"""Media type of binary bodies.

The bytes are an Arrow stream of rows, or the file of a saved estimator. Clients that are generated
from the OpenAPI document send this media type.
"""

ARROW_TYPES = (ARROW_STREAM, "application/vnd.apache.arrow.file", OCTET_STREAM)
JSON = "application/json"
SAFETENSORS = "application/safetensors"
SAVED_MODEL_TYPES = (OCTET_STREAM, SAFETENSORS)
"""Media types of the file of a saved estimator."""

ROWS_PATHS = ("/partial_fit", "/transform", "/predict")
"""Paths of routes that read a body of rows."""

BodyFormat = Literal["arrow", "json"]
"""Format of a request body that holds rows."""

CONTENT_ENCODINGS = ("gzip", "zstd")
"""Content encodings that the service can decompress. pyarrow has codecs of these names."""

DECOMPRESSED_STEP = 1 << 20
"""Number of bytes to decompress at a time."""


class SizeLimit(NamedTuple):
    """Size limit of a body.

    Attributes
    ----------
    bytes : int
        Maximum number of bytes.
    setting : str
        Name of the setting that sets the maximum.
    advice : str
        Sentence that tells the client what to do about a larger body.
    """

    bytes: int
    setting: str
    advice: str


class BodyMemory:
    """Counter and limit of the memory of all request bodies.

    If a request declares the length of the body, this length is counted at the start of the
    request. If no length is declared, bytes are counted when they arrive. A body counts until the
    request is answered, so bodies that wait to be parsed and written are counted, too.

    Attributes
    ----------
    bytes : int
        Number of bytes counted now.
    """

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self._limit = max_bytes

    def reserve_bytes(self, n_bytes: int, already_counted_bytes: int = 0) -> None:
        """Reserve memory for a further part of a request body.

        n_bytes: number of bytes of the part.
        already_counted_bytes: number of bytes that were reserved for earlier parts of this body.

        Raises
        ------
        ServiceError `overloaded`
            All bodies together would exceed the limit.
        ServiceError `body_too_large`
            This body alone would exceed the limit.
        """
        # Sending such a body again later cannot help, so this error is not `overloaded`.
        if already_counted_bytes + n_bytes > self._limit:
            limit = SizeLimit(self._limit, "max_queue_bytes", "Send fewer rows a batch.")
            raise _too_large_error(limit, f"{already_counted_bytes + n_bytes:,}")

        if self.bytes + n_bytes > self._limit:
            raise ServiceError(
                "overloaded",
                f"Request bodies of {self.bytes:,} bytes are being worked on, of {self._limit:,} allowed; send this one "
                "again shortly.",
                {"Retry-After": "1"},
            )
        self.bytes += n_bytes


@dataclass
class BodyLimitsMiddleware:
    """Middleware that refuses large bodies and decompresses other bodies."""

    app: ASGIApp
    settings: Settings
    memory: BodyMemory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a decompressed body.

        Raises ServiceError if the body is above a limit.
        """
        # The server also calls this method for its own start and stop (type "lifespan"). That call
        # has no headers, so empty headers let it pass like a request without a body.
        headers = Headers()
        if scope["type"] == "http":
            headers = Headers(scope=scope)
        declared = headers.get("content-length", "0")
        # A request without a body needs no checks.
        if declared == "0" and "transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return

        media, packing = _accepted_content_type(scope, headers)
        limit = body_size_limit(media, scope["path"], self.settings)
        if not (declared.isascii() and declared.isdigit()):
            raise ServiceError("bad_request", "Content-Length is not a number.")
        # `body` reserves the declared bytes in `self.memory` now, and more while the body is read.
        # The route reads by `body.receive`, which checks size and time.
        body = _Body(self.memory, limit, int(declared), self.settings.body_timeout, receive)
        receive = body.receive
        if packing in CONTENT_ENCODINGS:
            receive = functools.partial(_receive_decompressed, body, packing)
        try:
            await self.app(scope, receive, send)
        finally:
            # Give back all bytes that `body` has reserved.
            self.memory.bytes -= body.reserved_bytes


class _Body:
    """Body of one request.

    The body reserves memory and checks the limits while it is read.

    Attributes
    ----------
    reserved_bytes : int
        Number of bytes that BodyMemory counts for this body. It starts with the length that the
        request declares, and grows if more bytes arrive. For a compressed body, the decompressed
        bytes are added.
    """

    def __init__(
        self, memory: BodyMemory, limit: SizeLimit, declared_bytes: int, timeout_seconds: float, receive: Receive
    ) -> None:
        if declared_bytes > limit.bytes:
            raise _too_large_error(limit, f"{declared_bytes:,}")
        memory.reserve_bytes(declared_bytes)

        self.reserved_bytes = declared_bytes
        self._memory = memory
        self._limit = limit
        self._seconds = timeout_seconds
        self._deadline = asyncio.get_running_loop().time() + timeout_seconds
        self._receive = receive
        # Numbers of bytes received and decompressed so far.
        self._received_bytes = 0
        self._plain_bytes = 0
        # True if the last part of the body has been received.
        self._complete = False

    async def receive(self) -> Message:
        """Return the next ASGI message with part of the body.

        Raises ServiceError if the body is too large or arrives too late.
        """
        # Messages after the body, such as "http.disconnect", may arrive at any time.
        if self._complete:
            return await self._receive()

        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not arrive within {self._seconds:g} seconds."
            raise ServiceError("request_timeout", detail, {"Connection": "close"}) from None

        # A chunked body declares no length, so its bytes are counted as they arrive.
        self._received_bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._received_bytes > self._limit.bytes:
            raise _too_large_error(self._limit, f"more than {self._limit.bytes:,}")
        if self._received_bytes > self.reserved_bytes:
            self._reserve_bytes(self._received_bytes - self.reserved_bytes)
        return message

    def count_decompressed(self, n_bytes: int) -> None:
        """Count further decompressed bytes of the body.

        n_bytes: number of further decompressed bytes.

        Raises ServiceError if the body becomes too large.
        """
        self._plain_bytes += n_bytes
        if self._plain_bytes > self._limit.bytes:
            raise _too_large_error(self._limit, f"more than {self._limit.bytes:,} unpacked")
        self._reserve_bytes(n_bytes)

    def _reserve_bytes(self, n_bytes: int) -> None:
        self._memory.reserve_bytes(n_bytes, self.reserved_bytes)
        self.reserved_bytes += n_bytes


async def _receive_decompressed(body: _Body, encoding: str) -> Message:
    """Receive a compressed body, and return one decompressed ASGI message.

    Raises ServiceError if the body is too large, arrives too late or cannot be decompressed.

    encoding: content encoding of the body, one of CONTENT_ENCODINGS.
    """
    packed = pa.BufferOutputStream()
    more = True
    while more:
        message = await body.receive()
        packed.write(message.get("body", b""))
        more = message.get("more_body", False)
    # The client has closed the connection, so the body is incomplete. The route sees the message.
    if message["type"] == "http.disconnect":
        return message

    # Decompress in a thread, so that the event loop can serve other requests.
    # Decompress DECOMPRESSED_STEP bytes at a time, to refuse a body of gigabytes early.
    stream = pa.CompressedInputStream(pa.BufferReader(packed.getvalue()), encoding)
    pieces = []
    try:
        while piece := await asyncio.to_thread(stream.read, DECOMPRESSED_STEP):
            body.count_decompressed(len(piece))
            pieces.append(piece)
    except OSError as e:
        raise ServiceError(
            "malformed_input",
            f"The body is said to be {encoding} (Content-Encoding), and cannot be unpacked: {e}. Send it whole, and nothing "
            "after it.",
        ) from None
    return {**message, "body": b"".join(pieces)}


def media_type(content_type: str) -> str:
    """Return a Content-Type header's media type, in lower case.

    Parameters of the media type, such as "charset=utf-8", are removed.

    content_type: value of the header.
    """
    return content_type.partition(";")[0].strip().lower()


def rows_format(request: Request) -> BodyFormat:
    """Return the format of a request body that holds rows.

    The Content-Type header says the format. Raises ServiceError `unsupported_media_type` if there
    is no parser for this type.
    """
    media = media_type(request.headers.get("content-type", ""))
    if media in ARROW_TYPES:
        return "arrow"
    if media == JSON:
        return "json"
    detail = f"The body is {media or 'of no stated type'}; send {ARROW_STREAM} or {JSON}."
    raise ServiceError("unsupported_media_type", detail)


def negotiate_media_type(request: Request, offered_types: Sequence[str]) -> str:
    """Return the media type among `offered_types` that the client prefers.

    The Accept header says what the client prefers. Among equally preferred media types, the first
    one in `offered_types` is returned. Without an Accept header, all are equally preferred. Raises
    ServiceError `not_acceptable` if the client accepts none of `offered_types`.
    """
    header = request.headers.get("accept") or "*/*"
    ranges = map(_parse_accept_element, header.split(","))
    # Try the media ranges from the highest quality on.
    # `kind` of the offer "text/html" is "text". The ranges "text/*" and "*/*" include this offer.
    for media_range, quality in sorted(ranges, key=lambda element: -element[1]):
        for offer in offered_types:
            kind, _, _ = offer.partition("/")
            if quality > 0 and media_range in ("*/*", f"{kind}/*", offer):
                return offer
    raise ServiceError("not_acceptable", f"Accept: {header} names none of {', '.join(offered_types)}.")


def _parse_accept_element(accept_element: str) -> tuple[str, float]:
    """Return the media range and the quality of an Accept header's element.

    The quality is the client's preference. 0 means that the client does not accept these types,
    and so does a quality that is not a number. Without a quality, the quality is 1.

    accept_element: the element, for example "text/*;q=0.5".
    """
    media_range, *parameters = map(str.strip, accept_element.split(";"))
    qualities = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
    quality = 1.0
    if qualities:
        try:
            quality = float(qualities[0])
        except ValueError:
            quality = 0.0
    return media_range.lower(), quality


def body_size_limit(content_type: str, path: str, settings: Settings) -> SizeLimit:
    """Return the size limit of a request body.

    The limit applies to the compressed body and to the decompressed body.

    content_type: media type of the body.
    path: path of the request.
    """
    if content_type != JSON:
        return SizeLimit(settings.max_body_bytes, "max_body_bytes", "Send fewer rows a batch.")
    if path not in ROWS_PATHS:
        return SizeLimit(settings.max_json_bytes, "max_json_bytes", "Send less a request.")

    arrow = f"an Arrow stream ({ARROW_STREAM}), of which {settings.max_body_bytes:,} bytes are taken (max_body_bytes)"
    return SizeLimit(settings.max_json_bytes, "max_json_bytes", f"Send the rows as {arrow}, or fewer of them.")


def _accepted_content_type(scope: Scope, headers: Headers) -> tuple[str, str]:
    """Return a request body's media type and content encoding.

    The encoding of an uncompressed body is "identity". Raises ServiceError
    `unsupported_media_type` if the route does not read the type or the encoding is unknown.
    """
    media = media_type(headers.get("content-type", ""))
    packing = ", ".join(headers.getlist("content-encoding")).strip().lower() or "identity"
    # PUT creates a model, from JSON or from the file of a saved estimator.
    accepted: tuple[str, ...] = (JSON,)
    if scope["method"] == "PUT":
        accepted += SAVED_MODEL_TYPES
    elif scope["path"] in ROWS_PATHS:
        accepted += ARROW_TYPES
    if media not in accepted or packing not in ("identity", *CONTENT_ENCODINGS):
        encodings = " or ".join(CONTENT_ENCODINGS)
        raise ServiceError(
            "unsupported_media_type",
            f"The body is {media or 'of no stated type'}, encoding {packing}; send {' or '.join(accepted)}, as it is or "
            f"with Content-Encoding {encodings}.",
            {"Accept-Encoding": ", ".join(CONTENT_ENCODINGS)},
        )
    return media, packing


def _too_large_error(limit: SizeLimit, size_text: str) -> ServiceError:
    return ServiceError(
        "body_too_large",
        f"The body has {size_text} bytes; at most {limit.bytes:,} are taken ({limit.setting}). {limit.advice}",
        limit=limit.bytes,
    )
