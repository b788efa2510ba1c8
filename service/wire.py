"""Wire: from bytes to Blocks and from answers to bytes; content types and what a client accepts.

Reading Arrow and JSON is the library's own work (`stream_dr.parse_rows`, `stream_dr.rows_draft`); nothing here looks
into rows.

Why this way: what HTTP takes is, to the byte, what the library and the command line take.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response

import stream_dr
from service.bodies import ARROW, JSON, media_type
from service.problems import Problem, written

ARROW_STREAM = ARROW[0]
SAFETENSORS = "application/safetensors"
EVENT_STREAM = "text/event-stream"
LONGEST_KEY = 256
"""Characters of an idempotency key."""


def media(headers: Mapping[str, str]) -> str:
    """ "arrow" or "json": what the body says it is. Raises Problem `unsupported_media_type`."""
    given = media_type(headers.get("content-type", ""))
    if given in ARROW:
        return "arrow"
    if given == JSON:
        return "json"
    raise Problem(
        "unsupported_media_type", f"The body is {given or 'of no stated type'}; send {ARROW_STREAM} or {JSON}."
    )


def accepted(request: Request, offers: Sequence[str]) -> str:
    """The first media type the client prefers among `offers` (the first of them where it does not say). Raises Problem."""
    header = request.headers.get("accept") or "*/*"
    wishes = sorted((_wish(part) for part in header.split(",")), key=lambda w: -w[1])
    for wanted, quality in wishes:
        for offer in offers:
            if quality > 0 and (wanted in ("*/*", offer) or wanted == f"{offer.partition('/')[0]}/*"):
                return offer
    raise Problem("not_acceptable", f"Accept: {header} names none of {', '.join(offers)}.")


async def body(request: Request) -> bytes | memoryview:
    """The whole body, not copied where it came in one piece. Raises ClientDisconnect."""
    pieces = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """The Idempotency-Key header. Raises Problem `invalid_request` for one that is empty, too long or not printable."""
    key = headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise Problem("invalid_request", f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters.")
    return key


def query(given_query: bytes, *names: str) -> dict[str, str]:
    """A query's parameters. Raises Problem `invalid_request` for one that is not among `names`, or is given twice."""
    if not given_query:
        return {}
    given = QueryParams(given_query).multi_items()
    found = dict(given)
    for name in found:
        if name not in names:
            raise Problem("invalid_request", f"{name} is no parameter of this address; it takes {', '.join(names)}.")
    if len(found) != len(given):
        raise Problem("invalid_request", "A parameter is given more than once.")
    return found


def flag(value: str | None) -> bool:
    """Whether a parameter is given and is not 0 or false."""
    return value is not None and value.lower() not in ("0", "false")


def one_row(x: str | None, indices: str | None, values: str | None) -> Any:
    """The Block of the one row in a query: x, or indices and values.

    Raises Problem `invalid_request`, NotFinite, InvalidRows or InvalidIndex.
    """
    if (x is None) == (indices is None) or (indices is None) != (values is None):
        raise Problem(
            "invalid_request", "Give either x=0.1,0.2 (a dense row) or indices=3,17&values=0.5,1.2 (a sparse one)."
        )
    if x is not None:
        return stream_dr.one_row(_floats("x", x))
    return stream_dr.one_row(_floats("values", values or ""), _ints(indices or ""))


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Content as JSON; arrays are written as lists, and integers of more than 64 bits in digits (a log may hold such labels,
    which are no longer taken)."""
    try:
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=str)
    except orjson.JSONEncodeError:
        body = orjson.dumps(written(content), option=orjson.OPT_SERIALIZE_NUMPY, default=str)
    return Response(body, status, headers, JSON)


def _wish(part: str) -> tuple[str, float]:
    wanted, *parameters = (p.strip() for p in part.split(";"))
    quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return wanted.lower(), float(quality)
    except ValueError:
        return wanted.lower(), 0.0


def _floats(name: str, text: str) -> list[float]:
    try:
        numbers = list(map(float, text.split(","))) if text.strip() else []
    except ValueError:
        raise Problem("invalid_request", f"{name}={text!r} is not a list of numbers parted by commas.") from None
    if not all(map(math.isfinite, numbers)):
        column = next(i for i, number in enumerate(numbers) if not math.isfinite(number))
        raise stream_dr.errors.NotFinite(f"row 0, entry {column} of {name} is {numbers[column]}.", row=0, column=column)
    return numbers


def _ints(text: str) -> list[int]:
    try:
        return list(map(int, text.split(","))) if text.strip() else []
    except ValueError:
        raise Problem("invalid_request", f"indices={text!r} is not a list of integers parted by commas.") from None
