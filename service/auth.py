"""Access: bearer tokens, one for reading and one for writing, compared in constant time; without tokens loopback only.

A middleware outside of everything that reads a body, so that a client without the right is refused before its body is read.
With tokens set, everything but /livez, /readyz and pages that hold no data (the dashboard's empty one, /docs and what it is
made of) needs one: reading takes either (reading is free to all only when no token is set), writing takes the write token.
Transport encryption is a proxy's part (docs/deploy).

Without tokens any page in a local browser could reach the service, so requests that carry a foreign `Origin` (but those of
cors_origins), or a `Host` that is not this machine, are refused.
"""

import hmac
import ipaddress
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.problems import Problem
from service.settings import Settings

OPEN = ("/", "/livez", "/readyz", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
READING = (("POST", "/transform"), ("POST", "/predict"))
OPEN_FILES = ("/static-offline-docs/", "/dashboard/")
"""Paths that need no token, and where the files lie that /docs and /redoc, and the dashboard, are made of."""

Right = Literal["read", "write"]


def check_host(settings: Settings) -> None:
    """Raise ValueError for an address that others can reach while no token guards it."""
    if not settings.loopback and settings.write_token is None:
        raise ValueError(
            f"host {settings.host} can be reached from other machines and no token is set. Set "
            "STREAM_DR_WRITE_TOKEN (and STREAM_DR_READ_TOKEN), or listen on 127.0.0.1."
        )


class Access:
    """The middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass. Raises Problem `unauthorized` or `forbidden`."""
        if scope["type"] == "http":
            right = needed(scope["method"], scope["path"])
            if right is not None:
                check(self.settings, Headers(scope=scope), right)
        await self.app(scope, receive, send)


def needed(method: str, path: str) -> Right | None:
    """The right that a request needs; what is not known needs the right to write."""
    if path in OPEN or path.startswith(OPEN_FILES):
        return None
    return "read" if method in ("GET", "HEAD") or (method, path) in READING else "write"


def check(settings: Settings, headers: Headers, right: Right) -> None:
    """Raise Problem unless a request of these headers has the right."""
    if settings.write_token is None:
        _check_local(headers, settings.cors_origins)
        return
    given = _bearer(headers)
    accepted = [settings.write_token] + ([settings.read_token] if right == "read" else [])
    matches = [hmac.compare_digest(given, t.get_secret_value().encode()) for t in accepted if t is not None]
    if not any(matches):
        raise Problem(
            "unauthorized",
            f"A valid {right} token is needed: send the header Authorization: Bearer <token>.",
            {"WWW-Authenticate": 'Bearer realm="stream_dr"'},
        )


def may_write(settings: Settings, headers: Headers) -> bool:
    """Whether a request of these headers could write."""
    try:
        check(settings, headers, "write")
    except Problem:
        return False
    return True


def _bearer(headers: Headers) -> bytes:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _check_local(headers: Headers, origins: tuple[str, ...]) -> None:
    origin = headers.get("origin")
    host = headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host and origin not in origins:
        raise Problem(
            "forbidden",
            f"Without a token only pages of this service itself may call it, and none of {origin}; name it in cors_origins.",
        )
    if not _local(host):
        raise Problem("forbidden", f"Without a token the service answers to local names only, not to {host!r}.")


@lru_cache(1_000)
def _local(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or "localhost"
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
