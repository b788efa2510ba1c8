"""Media types: of what comes in (Content-Type) and of what a client wants back (Accept)."""

from collections.abc import Sequence

from fastapi import Request

from service.problems import Problem

ARROW_STREAM = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"
"""What generated clients call bytes: of rows an Arrow stream, of a model the file of a saved estimator."""
ARROW = (ARROW_STREAM, "application/vnd.apache.arrow.file", OCTETS)
JSON = "application/json"
SAFETENSORS = "application/safetensors"
SAVED = (OCTETS, SAFETENSORS)
"""What a saved estimator's file may be called."""


def accepted(request: Request, offers: Sequence[str]) -> str:
    """The first media type the client prefers among `offers` (the first of them where it does not say). Raises Problem."""
    header = request.headers.get("accept") or "*/*"
    wishes = sorted((_wish(part) for part in header.split(",")), key=lambda w: -w[1])
    for wanted, quality in wishes:
        for offer in offers:
            if quality > 0 and (wanted in ("*/*", offer) or wanted == f"{offer.partition('/')[0]}/*"):
                return offer
    raise Problem("not_acceptable", f"Accept: {header} names none of {', '.join(offers)}.")


def _wish(part: str) -> tuple[str, float]:
    wanted, *parameters = (p.strip() for p in part.split(";"))
    quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return wanted.lower(), float(quality)
    except ValueError:
        return wanted.lower(), 0.0
