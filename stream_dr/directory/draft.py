"""Draft: something offered to the log, with its rows already parsed; Receipt: what became of it.

Rows come as an Arrow or JSON body, as the numbers of one row, or as a batch of a shard. Parsing a body and hashing it is
the costly part of taking a batch in; `rows_draft` does both, in the caller's thread, so the appender only admits and
writes.

Why this way: the log keeps the body exactly as it was sent, so the same key with the same bytes is recognised for what
it is.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import scipy.sparse as sp

from stream_dr.arrow.codec import block_from_arrow, block_from_json, read_arrow
from stream_dr.arrow.json_rows import check_gaps
from stream_dr.arrow.rows import WIDEST
from stream_dr.errors import InvalidIndex, InvalidRows, LimitExceeded, MalformedInput
from stream_dr.log.event import Body, quick_digest, sha256_of
from stream_dr.log.ids import id_hashes
from stream_dr.log.index import LASTING
from stream_dr.models.schema import Limits
from stream_dr.rows.block import Block

REFERENCE = LASTING
"""Keys of reference events start so; a caller's own key may not."""

Removal = dict[int, Sequence[int] | None]
"""Position → row numbers within that event (None: all)."""


class Draft(NamedTuple):
    """One event to be.

    kind: "rows", "reference" or "unlearn". body: what the log keeps. fingerprint: hex digest by which it is compared with
    others of its key. key: idempotency key or None. block: the parsed rows (rows and reference), their values checked by
    the codec. rows: number of rows it names. ids: (rows,) hashes of the rows' ids, where they have any.
    """

    kind: str
    body: Body
    fingerprint: str
    key: str | None = None
    block: Block | None = None
    rows: int = 0
    ids: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Bytes it takes in memory: a compressed body is a small part of its rows."""
        return max(len(self.body), self.block.nbytes if self.block is not None else 0)


class Receipt(NamedTuple):
    """An appended event's position and rows; duplicate when its key had been appended before, with the same body.
    columns_missing: a table's columns that the rows do not have, taken as missing."""

    position: int
    rows: int
    duplicate: bool = False
    columns_missing: tuple[str, ...] = ()


class DryRunReceipt(NamedTuple):
    """What a receipt would say; nothing was appended."""

    rows: int
    duplicate: bool
    columns_missing: tuple[str, ...]


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
    return Draft("rows", kept, quick_digest(body), key, block, block.rows, _hashes(block))


def reference_draft(reference: Reference, block: Block) -> Draft:
    """Make the draft of a batch that stays in its shard; its key is (shard sha256, batch, pass)."""
    facts = reference._asdict()
    facts["pass"] = facts.pop("passed")
    digest = sha256_of(reference.key.encode())
    return Draft("reference", _json(facts), digest, reference.key, block, reference.rows, _hashes(block))


def reference_in(body: Body) -> Reference:
    """The Reference in a reference event's body."""
    facts = json.loads(bytes(body))
    return Reference(facts["uri"], facts["sha256"], facts["batch"], facts["pass"], facts["rows"])


def unlearn_draft(picked: Removal, key: str | None = None, request: bytes | None = None) -> Draft:
    """Rows to be taken out: position → row numbers within that event, None for all of them.

    request: what was asked for, in bytes, by which a repetition under the same key is recognised; the event's body if
    None.
    """
    body = _json({"rows": {str(p): None if r is None else list(r) for p, r in sorted(picked.items())}})
    return Draft("unlearn", body, sha256_of(request or body), key)


def removal_of(body: Body) -> Removal:
    """The Removal in an unlearn event's body."""
    return {int(position): rows for position, rows in json.loads(bytes(body))["rows"].items()}


def parse_rows(body: Body, media: str, limits: Limits | None) -> Block:
    """The Block in an Arrow or JSON body. limits: None of a body that was taken before, whatever the limits are now. Raises
    what arrow.codec raises, and LimitExceeded."""
    if media != "json":
        return block_from_arrow(read_arrow(body, max_bytes=limits.max_body_bytes if limits else None))
    if limits and len(body) > limits.max_json_bytes:
        raise LimitExceeded(
            f"JSON body of {len(body)} bytes; at most {limits.max_json_bytes} are taken. Send Arrow, or fewer rows.",
            bytes=len(body),
        )
    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise MalformedInput(f"body is not JSON ({e}); send {{'rows': [[…], …], 'labels': […]}}.") from e
    if limits:
        check_gaps(obj)
    return block_from_json(obj)


def media_of(body: Body) -> str:
    """ "json" or "arrow", by the first byte."""
    return "json" if bytes(body).lstrip()[:1] in (b"{", b"[") else "arrow"


def one_row(values: Sequence[float], indices: Sequence[int] | None = None) -> Block:
    """The Block of one row given as numbers: dense, or sparse where indices are given, in any order.

    Raises InvalidRows (no values, another number of indices than values) and InvalidIndex (negative, repeated, too large).
    """
    if indices is None:
        if not len(values):
            raise InvalidRows("the row has no values; send one number a feature.")
        return Block(np.array([values], dtype=np.float64))
    if len(indices) != len(values):
        raise InvalidRows(f"{len(indices)} indices and {len(values)} values; send as many of one as of the other.")
    if len(indices) and not 0 <= min(indices) <= max(indices) < WIDEST:
        raise InvalidIndex(f"index {min(indices)} … {max(indices)}; indices must be from 0 to {WIDEST - 1}.", row=0)
    columns, data = np.array(indices, dtype=np.int32), np.array(values, dtype=np.float64)
    order = np.argsort(columns, kind="stable")
    columns, data = columns[order], data[order]
    repeated = np.flatnonzero(columns[1:] == columns[:-1])
    if len(repeated):
        raise InvalidIndex(f"index {columns[repeated[0]]} is repeated in row 0; give each index once.", row=0)
    X = sp.csr_matrix(
        (data, columns, np.array([0, len(data)], dtype=np.int32)), shape=(1, int(columns.max(initial=-1)) + 1)
    )
    X.has_canonical_format = True
    return Block(X, width_stated=False)


class Recent:
    """Drafts that were just appended, still parsed, by position, so that who reads the log need not parse them again.

    At most `max_bytes` of them, as sent or as unpacked: while there is no room the newest are left out, for models take the
    oldest first. Thread-safe.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self._room = max_bytes
        self._held: dict[int, Draft] = {}
        self._lock = threading.Lock()

    def put(self, position: int, draft: Draft) -> None:
        """Hold a draft while there is room."""
        with self._lock:
            if draft.size <= self._room:
                self._held[position] = draft
                self._room -= draft.size

    def take(self, after: int, limit: int) -> list[tuple[int, Draft]]:
        """At most `limit` drafts at positions after + 1, after + 2 …, without gap; they stay held."""
        found: list[tuple[int, Draft]] = []
        with self._lock:
            while len(found) < limit and (draft := self._held.get(after + 1 + len(found))) is not None:
                found.append((after + 1 + len(found), draft))
        return found

    def first(self, after: int, otherwise: int) -> int:
        """The oldest position past `after` that is held, or `otherwise`."""
        with self._lock:
            return min((position for position in self._held if position > after), default=otherwise)

    def forget(self, until: int) -> None:
        """Let go of the drafts at positions ≤ until."""
        with self._lock:
            for position in [p for p in self._held if p <= until]:
                self._room += self._held.pop(position).size


def _hashes(block: Block) -> np.ndarray | None:
    return None if block.ids is None else id_hashes(block.ids)


def _json(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
