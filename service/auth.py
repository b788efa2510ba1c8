"""Access control by bearer tokens, one for reading and one for writing.

If the settings have a write token:

- A request that reads needs the read token or the write token.
- A request that writes needs the write token.
- /livez, /readyz and pages without data need no token.

Without tokens the service listens on loopback only. The service does not encrypt connections. A
proxy can do that (docs/deploy).
"""

import hmac
import ipaddress
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.problems import ServiceError
from service.settings import Settings

OPEN = ("/", "/livez", "/readyz", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
"""Paths that need no token."""

OPEN_FILES = ("/static-offline-docs/", "/dashboard/")
"""Prefixes of paths of the files of /docs, /redoc and the dashboard, which need no token."""

READING = (("POST", "/transform"), ("POST", "/predict"))
"""Requests that only read although they are POSTs."""

Right = Literal["read", "write"]


def check_host(settings: Settings) -> None:
    """Raise ValueError if other machines can reach the address and no token is set."""
    if not settings.loopback and settings.write_token is None:
        raise ValueError(
            f"host {settings.host} can be reached from other machines and no token is set. Set "
            "STREAM_DR_WRITE_TOKEN (and STREAM_DR_READ_TOKEN), or listen on 127.0.0.1."
        )


class Access:
    """Middleware that refuses requests without the right they need.

    The middleware runs before any code that reads a body. So a request without the right is
    refused before its body is read.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Raises ServiceError `unauthorized` or `forbidden`."""
        if scope["type"] == "http":
            right = needed_right(scope["method"], scope["path"])
            if right is not None:
                check_rights(self.settings, Headers(scope=scope), right)
        await self.app(scope, receive, send)


def needed_right(method: str, path: str) -> Right | None:
    """Return the right that a request needs, "read" or "write".

    None if the path is public. Unknown paths and methods need "write".
    """
    if path in OPEN or path.startswith(OPEN_FILES):
        return None
    return "read" if method in ("GET", "HEAD") or (method, path) in READING else "write"


def check_rights(settings: Settings, headers: Headers, right: Right) -> None:
    """Raise ServiceError unless a request with these headers has the right.

    right: "read" or "write". Without a write token in the settings, local requests have both.
    """
    if settings.write_token is None:
        _check_local(headers, settings.cors_origins)
        return

    # Compare all accepted tokens, each in constant time. The time of the comparison then reveals
    # nothing about the tokens.
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
    """Return True if a request with these headers has the right to write."""
    try:
        check_rights(settings, headers, "write")
    except ServiceError:
        return False
    return True


def _bearer_token(headers: Headers) -> bytes:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _check_local(headers: Headers, origins: tuple[str, ...]) -> None:
    """Raise ServiceError `forbidden` if a foreign page or another host name made the request."""
    # Without tokens any page in a browser of this machine could otherwise reach the service.
    origin = headers.get("origin")
    host = headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host and origin not in origins:
        raise ServiceError(
            "forbidden",
            f"Without a token only pages of this service itself may call it, and none of {origin}; name it in cors_origins.",
        )
    if not _is_local(host):
        raise ServiceError("forbidden", f"Without a token the service answers to local names only, not to {host!r}.")


@lru_cache(1_000)
def _is_local(host: str) -> bool:
    """Return True if a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or "localhost"
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
