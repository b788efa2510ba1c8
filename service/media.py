"""Media types of bodies (Content-Type) and of responses (Accept)."""

from collections.abc import Sequence

from fastapi import Request

from service.problems import ServiceError

ARROW_STREAM = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"
"""Media type of bytes in generated clients.

The bytes are an Arrow stream of rows, or the file of a saved estimator.
"""

ARROW = (ARROW_STREAM, "application/vnd.apache.arrow.file", OCTETS)
JSON = "application/json"
SAFETENSORS = "application/safetensors"
SAVED = (OCTETS, SAFETENSORS)
"""Media types of the file of a saved estimator."""


def preferred_media(request: Request, offers: Sequence[str]) -> str:
    """Return the media type among `offers` that the client prefers.

    Between equals, and for a client without an Accept header, the first offer is taken. Raises
    ServiceError `not_acceptable`.
    """
    header = request.headers.get("accept") or "*/*"
    ranges = sorted((_parse_range(part) for part in header.split(",")), key=lambda pair: -pair[1])
    for media_range, quality in ranges:
        for offer in offers:
            if quality > 0 and (media_range in ("*/*", offer) or media_range == f"{offer.partition('/')[0]}/*"):
                return offer
    raise ServiceError("not_acceptable", f"Accept: {header} names none of {', '.join(offers)}.")


def _parse_range(part: str) -> tuple[str, float]:
    """Return a media range of an Accept header and its quality.

    A quality that is not a number counts as 0.
    """
    media_range, *parameters = (p.strip() for p in part.split(";"))
    quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return media_range.lower(), float(quality)
    except ValueError:
        return media_range.lower(), 0.0
