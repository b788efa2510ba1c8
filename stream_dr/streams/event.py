"""event: one entry of the log, before and after it has a position.

Why this way: sha256 answers "is this the same body as before" and is the caller's to choose (of the bytes as they were sent,
or of a reference's identity); checksum answers "are these the bytes that were written" and is set where the two differ.
"""

import hashlib
from typing import NamedTuple


class Event(NamedTuple):
    """One entry of the log.

    position: its number, from 0 without gap. kind: "rows", "reference" or "unlearn". key: idempotency key or None.
    sha256: hex digest by which two bodies of one key are compared. rows: number of rows. body: the stored bytes. schema:
    JSON text of what it changed in the stream's schema, or None. checksum: hex digest of `body` where that is not sha256.
    """

    position: int
    kind: str
    key: str | None
    sha256: str
    rows: int
    body: bytes
    schema: str | None
    checksum: str | None = None


class EventDraft(NamedTuple):
    """An event before it has a position; fields as in Event. `draft` fills in the sha256."""

    kind: str
    key: str | None
    sha256: str
    rows: int
    body: bytes
    schema: str | None = None
    checksum: str | None = None


def draft(kind: str, body: bytes, rows: int, key: str | None = None, schema: str | None = None) -> EventDraft:
    """An EventDraft whose sha256 is its body's (about 1 ms per 1-2 MB: compute it outside the appending thread)."""
    return EventDraft(kind, key, hashlib.sha256(body).hexdigest(), rows, body, schema)


def event_at(position: int, d: EventDraft) -> Event:
    """The event a draft becomes. Only "rows" bodies are surely what sha256 is of; the others are small and hashed here."""
    checksum = d.checksum if d.checksum or d.kind == "rows" else hashlib.sha256(d.body).hexdigest()
    return Event(position, d.kind, d.key, d.sha256, d.rows, d.body, d.schema, checksum)
