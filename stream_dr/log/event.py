"""Event: a log entry, with or without a position.

An event has two digests.

* The fingerprint shows whether two requests with the same idempotency key have the same content.
  The caller chooses its input: the bytes as they were sent, or the identity of a shard's batch.
* The checksum shows whether the stored bytes have changed since they were written. A checksum that
  equals the fingerprint is not stored.

Both digests are XXH64, which takes a fifth of the time of SHA-256 (a tenth of the whole cost of
appending a batch). Keys are used again by mistake, not by attackers, and one mistake in 2^64 is
not detected.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import xxhash

Body = bytes | memoryview
"""Body (payload) of an event: bytes, or a read-only view of bytes that will not change."""


EventKind = Literal["rows", "reference", "unlearn"]
"""Kind of an event, which decides what the event's body (payload) means.

- "rows": the body has the rows.
- "reference": the body names a batch of a shard.
- "unlearn": the body names rows that models unlearn.
"""


class Event(NamedTuple):
    """Entry of the log.

    position: number of the event, from 0 without gap.
    kind: kind of the event, which decides what `body` means.
    key: idempotency key or None.
    fingerprint: hex digest that shows whether two requests with one key have the same content.
    rows: number of rows.
    body: the stored bytes (payload).
    schema: JSON text of the event's change of the stream's schema, or None.
    checksum: hex digest of `body`, or None if the fingerprint is the digest of `body`.
    """

    position: int
    kind: EventKind
    key: str | None
    fingerprint: str
    rows: int
    body: Body
    schema: str | None
    checksum: str | None = None

    @property
    def intact(self) -> bool:
        """True if `body` has its stored digest. Costs one pass over the body."""
        return xxh64_digest(self.body) == (self.checksum or self.fingerprint)


class EventDraft(NamedTuple):
    """Event that has no position yet.

    The fields mean the same as in Event, except `ids`.

    ids: (rows,) hashes of the rows' ids (`ids.id_hashes`), or None if rows have no ids.
    """

    kind: EventKind
    key: str | None
    fingerprint: str
    rows: int
    body: Body
    schema: str | None = None
    ids: np.ndarray | None = None


def event_of_draft(position: int, draft: EventDraft) -> Event:
    """Return the event of a draft at a position.

    The event gets a checksum of its body if it needs one.
    """
    # The fingerprint of an event of rows is already the digest of its body.
    checksum = None if draft.kind == "rows" else xxh64_digest(draft.body)
    return Event(position, draft.kind, draft.key, draft.fingerprint, draft.rows, draft.body, draft.schema, checksum)


def row_digest(*fields: object) -> int:
    """Return a digest of a table row's fields.

    Costs O(bytes).

    The digest is 63 bits of an XXH64. It is stored with the fields, because SQLite detects a
    broken page but not a flipped bit inside a value.

    fields: ints, strings, bytes or None.
    """
    return xxhash.xxh64_intdigest(ascii(fields).encode()) >> 1


def xxh64_digest(body: Body) -> str:
    """Return the XXH64 of bytes as 16 hex digits. O(bytes)."""
    return xxhash.xxh64_hexdigest(body)


def remaining_row_numbers(n_remaining: int, erased_numbers: Sequence[int]) -> np.ndarray:
    """Return the original numbers (rows,) of an event's remaining rows.

    The original number of a row is its index among the event's rows when the event was appended.

    n_remaining: number of remaining rows.
    erased_numbers: original numbers of the rows that were erased from the payload.
    """
    return np.setdiff1d(np.arange(n_remaining + len(erased_numbers)), erased_numbers)
