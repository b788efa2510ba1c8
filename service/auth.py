"""Access control by bearer tokens for reading and for writing.

If the settings have a write token:

- A request that reads needs the read token or the write token.
- A request that writes needs the write token.
- /livez, /readyz and pages without data need no token.

Without tokens the service listens on loopback only. The service does not encrypt connections. A
proxy can do that (docs/deploy).
"""

import hmac
import ipaddress
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

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


class AccessMiddleware:
    """Middleware that refuses requests without the right to read or write.

    The middleware runs before any code that reads a body. So a request without the needed right is
    refused before its body is read.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Raises ServiceError `unauthorized` or `forbidden`."""
        if scope["type"] == "http":
            right = needed_read_or_write_right(scope["method"], scope["path"])
            if right is not None:
                refuse_without_right(self.settings, Headers(scope=scope), right)
        await self.app(scope, receive, send)


def needed_read_or_write_right(method: str, path: str) -> Right | None:
    """Return the right that a request needs, "read" or "write".

    None if the path needs no token. Unknown paths and methods need "write".
    """
    if path in PUBLIC_PATHS or path.startswith(PUBLIC_PATH_PREFIXES):
        return None
    return "read" if method in ("GET", "HEAD") or (method, path) in READ_ONLY_POSTS else "write"


def refuse_without_right(settings: Settings, headers: Headers, right: Right) -> None:
    """Raise ServiceError unless a request's headers give it a right.

    - If the settings have a write token, the headers must have a token for the right. The error is
      `unauthorized`.
    - Without a write token, requests from this machine and from allowed pages have every right.
      For other requests the error is `forbidden`.
    """
    if settings.write_token is None:
        _refuse_foreign_host_or_origin(headers, settings.cors_origins)
        return

    # Compare the request's token with every accepted token, in constant time.
    # The response time then reveals nothing about the accepted tokens.
    token = _bearer_token(headers)
    accepted = [settings.write_token] + ([settings.read_token] if right == "read" else [])
    matches = [hmac.compare_digest(token, t.get_secret_value().encode()) for t in accepted if t is not None]
    if not any(matches):
        raise ServiceError(
            "unauthorized",
            f"A valid {right} token is needed: send the header Authorization: Bearer <token>.",
            {"WWW-Authenticate": 'Bearer realm="stream_dr"'},
        )


def may_write(settings: Settings, headers: Headers) -> bool:
    """Return True if a request may write, by its headers."""
    try:
        refuse_without_right(settings, headers, "write")
    except ServiceError:
        return False
    return True


def _bearer_token(headers: Headers) -> bytes:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _refuse_foreign_host_or_origin(headers: Headers, allowed_origins: tuple[str, ...]) -> None:
    """Refuse a request that a foreign page may have sent.

    Raises ServiceError `forbidden` unless both conditions are true:

    - The Host header names this machine.
    - If there is an Origin header, the header names the service or one of `allowed_origins`.
    """
    # Any web page in a browser of this machine can send requests to a loopback address.
    # Without tokens, only the headers Host and Origin show which requests are the user's own.
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
