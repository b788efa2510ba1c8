"""event: one entry of the log, before and after it has a position.

Why this way: the fingerprint answers "is this the same body as before" and is the caller's to choose (of the bytes as they
were sent, or of a reference's identity); checksum answers "are these the bytes that were written" and is set where the two
differ. A batch's fingerprint is XXH64, which takes a fifth of the time of SHA-256 (a tenth of all that taking a batch in
cost): a key is used again by mistake, or not at all, and one mistake in 2^64 is missed. Directories whose batches have
SHA-256 are read as well; the number of digits tells them apart.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import xxhash

_SHA256_DIGITS = 64

Body = bytes | memoryview
"""What an event holds: bytes, or a read-only view of bytes that will not change."""


class Event(NamedTuple):
    """One entry of the log.

    position: its number, from 0 without gap. kind: "rows", "reference" or "unlearn". key: idempotency key or None.
    fingerprint: hex digest by which two bodies of one key are compared. rows: number of rows. body: the stored bytes.
    schema: JSON text of what it changed in the stream's schema, or None. checksum: hex digest of `body` where the
    fingerprint is not that. A digest of 16 digits is XXH64, one of 64 SHA-256.
    """

    position: int
    kind: str
    key: str | None
    fingerprint: str
    rows: int
    body: Body
    schema: str | None
    checksum: str | None = None

    @property
    def intact(self) -> bool:
        """Whether `body` is what was written. Cost: one pass over it."""
        return same(self.body, self.checksum or self.fingerprint)


class EventDraft(NamedTuple):
    """An event before it has a position; fields as in Event. ids: (rows,) hashes of its rows' ids (`ids.id_hashes`),
    where they have any. `draft` fills in the fingerprint."""

    kind: str
    key: str | None
    fingerprint: str
    rows: int
    body: Body
    schema: str | None = None
    checksum: str | None = None
    ids: np.ndarray | None = None


def draft(kind: str, body: Body, rows: int, key: str | None = None, schema: str | None = None) -> EventDraft:
    """An EventDraft whose fingerprint is its body's (SHA-256: compute it outside the appending thread)."""
    return EventDraft(kind, key, sha256_of(body), rows, body, schema)


def event_at(position: int, d: EventDraft) -> Event:
    """The event a draft becomes. Only rows' bodies are surely what the fingerprint is of; others are small, hashed here."""
    checksum = d.checksum if d.checksum or d.kind == "rows" else sha256_of(d.body)
    return Event(position, d.kind, d.key, d.fingerprint, d.rows, d.body, d.schema, checksum)


def same(body: Body, digest: str) -> bool:
    """Whether a digest, of either kind, is that of a body."""
    return digest == (sha256_of(body) if len(digest) == _SHA256_DIGITS else quick_digest(body))


def row_digest(*fields: object) -> int:
    """XXH64 of a stored row's fields (ints, strings, bytes, None), 63 bits of it, kept beside them: SQLite finds a broken
    page, not a flipped bit inside a value. O(bytes)."""
    return xxhash.xxh64_intdigest(ascii(fields).encode()) >> 1


def sha256_of(body: Body) -> str:
    """SHA-256 of bytes, 64 hex digits. O(bytes)."""
    return hashlib.sha256(body).hexdigest()


def quick_digest(body: Body) -> str:
    """XXH64 of bytes, 16 hex digits."""
    return xxhash.xxh64_hexdigest(body)
