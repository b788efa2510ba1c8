"""Draft: something offered to the log; Receipt: what became of it.

Parsing a body and hashing it is the costly part of taking a batch in; `rows_draft` does both, in the caller's thread,
so the appender only admits and writes.

Why this way: the log keeps the body exactly as it was sent, so the same key with the same bytes is recognised for what
it is.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from stream_dr.block import Block
from stream_dr.engine.decode import parse_rows
from stream_dr.engine.limits import Limits
from stream_dr.log.event import Body, quick_digest, sha256_of
from stream_dr.log.key_index import LASTING

REFERENCE = LASTING
"""Keys of reference events start so; a caller's own key may not."""


class Draft(NamedTuple):
    """One event to be.

    kind: "rows", "reference" or "unlearn". body: what the log keeps. fingerprint: hex digest by which it is compared with
    others of its key. key: idempotency key or None. block: the parsed rows (rows and reference), their values checked by
    the codec. rows: number of rows it names.
    """

    kind: str
    body: Body
    fingerprint: str
    key: str | None = None
    block: Block | None = None
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes it takes in memory: a compressed body is a small part of its rows."""
        return max(len(self.body), self.block.nbytes if self.block is not None else 0)


class Receipt(NamedTuple):
    """An appended event's position and rows; duplicate when its key had been appended before, with the same body."""

    position: int
    rows: int
    duplicate: bool = False


class Reference(NamedTuple):
    """What a reference event names: one batch of one shard, in one pass."""

    uri: str
    sha256: str
    batch: int
    passed: int
    rows: int

    @property
    def key(self) -> str:
        """Its identity in the log: (shard sha256, batch, pass)."""
        return f"{REFERENCE}{self.sha256}:{self.batch}:{self.passed}"


def rows_draft(body: Body, media: str = "arrow", key: str | None = None, limits: Limits | None = None) -> Draft:
    """A batch sent as bytes, parsed in full.

    media: "arrow" (an IPC stream or file) or "json". Raises MalformedInput, SchemaMismatch, InvalidIndex,
    InvalidTargets, InvalidWeights or LimitExceeded; costs one pass over the body, and no copy of bytes or of a read-only
    view of bytes that will not change.
    """
    block = parse_rows(body, media, limits or Limits())
    kept: Body = body.cast("B") if isinstance(body, memoryview) and body.readonly else bytes(body)
    return Draft("rows", kept, quick_digest(body), key, block, block.rows)


def reference_draft(reference: Reference, block: Block) -> Draft:
    """A batch that stays in its shard; its key is (shard sha256, batch, pass)."""
    facts = {
        "uri": reference.uri,
        "sha256": reference.sha256,
        "batch": reference.batch,
        "pass": reference.passed,
        "rows": reference.rows,
    }
    body = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return Draft("reference", body, sha256_of(reference.key.encode()), reference.key, block, reference.rows)


def unlearn_draft(
    picked: dict[int, Sequence[int] | None], key: str | None = None, request: bytes | None = None
) -> Draft:
    """Rows to be taken out: position → row numbers within that event, None for all of them.

    request: what was asked for, in bytes, by which a repetition under the same key is recognised; the event's body if
    None.
    """
    rows = {str(p): None if r is None else list(r) for p, r in sorted(picked.items())}
    body = json.dumps({"rows": rows}, sort_keys=True, separators=(",", ":")).encode()
    return Draft("unlearn", body, sha256_of(request or body), key)
