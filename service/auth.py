"""Access: bearer tokens, one for reading and one for writing, compared in constant time; without tokens loopback only.

With tokens set, everything but /livez, /readyz and pages that hold no data (the dashboard's empty one, /docs and what it
is made of) needs one: reading takes either (reading is free to all only when no token is set), writing takes the write
token. Transport encryption is a proxy's part (docs/deploy).

Without tokens any page in a local browser could reach the service, so requests that carry a foreign `Origin`, or a `Host`
that is not this machine, are refused.

The dependencies are coroutines, so that no request waits for a thread to be let in.

Why this way: two fixed tokens need no state; finer rights belong to the proxy.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi import Request

from service.problems import Problem
from service.settings import Settings


def check_host(settings: Settings) -> None:
    """Raise ValueError for an address that others can reach while no token guards it."""
    if not settings.loopback and settings.write_token is None:
        raise ValueError(
            f"host {settings.host} can be reached from other machines and no token is set. Set "
            "STREAM_DR_WRITE_TOKEN (and STREAM_DR_READ_TOKEN), or listen on 127.0.0.1."
        )


async def reads(request: Request) -> None:
    """Dependency of reading routes. Raises Problem `unauthorized`."""
    check(request.app.state.settings, request.headers, "read")


async def writes(request: Request) -> None:
    """Dependency of writing routes. Raises Problem `unauthorized`."""
    check(request.app.state.settings, request.headers, "write")


def check(settings: Settings, headers: Mapping[str, str], right: str) -> None:
    """Raise Problem unless a request of these headers, named in lower case, has the right, "read" or "write"."""
    if settings.write_token is None:
        _check_local(headers)
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


def _bearer(headers: Mapping[str, str]) -> bytes:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _check_local(headers: Mapping[str, str]) -> None:
    origin = headers.get("origin")
    host = headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem("forbidden", "Without a token only pages of this service itself may call it; set a token.")
    if not _local(host):
        raise Problem("forbidden", f"Without a token the service answers to local names only, not to {host!r}.")


@lru_cache(1_000)
def _local(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or "localhost"
        return name in ("localhost", "testserver") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
