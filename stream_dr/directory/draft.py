"""Draft: a parsed event that is not appended yet.

A Receipt is the answer to a draft that was appended. A Receipt has the position of the event.

Rows are given as an Arrow or JSON payload, as the numbers of one row, or as a batch of a shard.
Parsing and hashing a payload takes most of the time of an append. `rows_draft` does both in the
caller's thread. So the thread that appends only admits the draft and writes the event.

The log stores a payload exactly as it was sent. So a second request with the same idempotency key
and the same bytes is recognised as a repetition.
"""

import json
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import orjson

from stream_dr.batch.arrow import block_from_arrow, read_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import block_from_json, refuse_missing_values
from stream_dr.batch.messages import FIRST_BYTES
from stream_dr.batch.sparse import checked_csr
from stream_dr.errors import InvalidRows, LimitExceeded, MalformedInput
from stream_dr.first_bytes import describe_other_format
from stream_dr.log.event import Body, EventKind, xxh64_digest
from stream_dr.log.ids import id_hashes
from stream_dr.log.index import LASTING
from stream_dr.models.limits import Limits
from stream_dr.models.snapshot_file import canonical_json

REFERENCE = LASTING
"""Prefix of the idempotency keys of reference events.

A caller's own key must not have this prefix.
"""

DROP = "drop"
"""Value of an unlearn request's `releases` that deletes the releases with the rows."""

Removal = dict[int, Sequence[int] | None]
"""Numbers of the rows to unlearn, by position of their event.

None in place of the numbers means all rows of the event.
"""


class Draft(NamedTuple):
    """Event that has no position in the log yet.

    kind: kind of the event, which decides what `body` means.
    body: payload (the bytes that the log stores).
    fingerprint: hex digest of the payload. Shows whether two payloads with one key are equal.
    key: idempotency key or None.
    block: the parsed rows, whose values have been checked. None for kind "unlearn".
    rows: number of rows in the event.
    ids: (rows,) hashes of the rows' ids. None if the rows have no ids.
    """

    kind: EventKind
    body: Body
    fingerprint: str
    key: str | None = None
    block: Block | None = None
    rows: int = 0
    ids: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of bytes of payload or parsed rows, the larger.

        A compressed payload may be much smaller than its rows.
        """
        return max(len(self.body), self.block.nbytes if self.block is not None else 0)


class Receipt(NamedTuple):
    """Position and number of rows of an appended event.

    duplicate: True if the same payload was appended before with the same idempotency key. Then
        `position` is the position of the earlier event.
    columns_missing: columns of the stream's table that the rows lack. The rows are learned with
        missing values in these columns.

    >>> import stream_dr
    >>> receipt = stream_dr.Receipt(position=0, rows=2)
    >>> receipt.duplicate
    False
    """

    position: int
    rows: int
    duplicate: bool = False
    columns_missing: tuple[str, ...] = ()


class DryRunReceipt(NamedTuple):
    """Answer to a draft that was checked and not appended.

    rows, duplicate, columns_missing: the values that the Receipt would have after an append.

    >>> import stream_dr
    >>> with stream_dr.Directory("dry-run") as directory:
    ...     directory.check(stream_dr.rows_draft(b'{"rows": [[1, 2], [3, 1]]}', "json"))
    DryRunReceipt(rows=2, duplicate=False, columns_missing=())
    """

    rows: int
    duplicate: bool
    columns_missing: tuple[str, ...]


class Reference(NamedTuple):
    """Batch of a shard that an event refers to.

    uri: URI of the shard's file at the time of the event.
    sha256: hex digest of the shard's bytes.
    batch: index of the batch in the shard, from 0.
    pass_number: number of the pass over the data set, from 1.
    rows: number of rows of the batch.
    """

    uri: str
    sha256: str
    batch: int
    pass_number: int
    rows: int

    @property
    def key(self) -> str:
        """Idempotency key of the event.

        The key consists of the shard's SHA-256 digest, the index of the batch and the number of
        the pass.
        """
        return f"{REFERENCE}{self.sha256}:{self.batch}:{self.pass_number}"


def rows_draft(
    body: Body,
    media: str = "arrow",
    key: str | None = None,
    limits: Limits | None = None,
    stream_features: Sequence[str] = (),
) -> Draft:
    """Return the draft of a batch sent as bytes.

    The rows are parsed and their values are checked.

    body: the payload. `bytes` and a read-only memoryview are not copied, so the bytes behind a
        memoryview must not change later.
    media: "arrow" (an IPC stream or file) or "json".
    key: idempotency key or None.
    limits: limits on the sizes of a payload. None takes the defaults.
    stream_features: names of the stream's features, if they are known. A column that may be one of
        them or may have weights, for example, is then refused by its name.

    Raises MalformedInput, SchemaMismatch, InvalidIndex, InvalidTargets, InvalidWeights or
    LimitExceeded. Costs one pass over the payload.

    >>> import stream_dr
    >>> draft = stream_dr.rows_draft(b'{"rows": [[1, 2], [3, 1]], "labels": ["a", "b"]}', "json", key="first")
    >>> draft.rows, draft.key
    (2, 'first')
    """
    block = parse_rows(body, media, limits or Limits(), stream_features, to_learn=True)
    stored: Body = body.cast("B") if isinstance(body, memoryview) and body.readonly else bytes(body)
    return Draft("rows", stored, xxh64_digest(body), key, block, block.rows, _block_id_hashes(block))


def reference_draft(reference: Reference, block: Block) -> Draft:
    """Return the draft of a reference to a shard's batch.

    The event stores the reference and not the rows.

    block: the batch's rows, or a few of the rows that have all columns and labels.
    """
    fields = reference._asdict()
    fields["pass"] = fields.pop("pass_number")
    body = canonical_json(fields).encode()
    key = reference.key
    return Draft("reference", body, xxh64_digest(key.encode()), key, block, reference.rows, _block_id_hashes(block))


def parse_reference(body: Body) -> Reference:
    """Return the Reference in a reference event's payload.

    A Reference names a shard, a batch and a pass.
    """
    fields = json.loads(bytes(body))
    return Reference(fields["uri"], fields["sha256"], fields["batch"], fields["pass"], fields["rows"])


def unlearn_draft(
    rows_to_unlearn: Removal, key: str | None = None, request: bytes | None = None, drop_releases: bool = False
) -> Draft:
    """Return the draft of an event that unlearns rows.

    rows_to_unlearn: the rows to unlearn.
    key: idempotency key or None.
    request: bytes of the client's request. A second request with the same key must have the same
        bytes. None compares the payloads of the events instead.
    drop_releases: True to delete the releases that hold the rows.
    """
    rows = {str(p): None if r is None else list(r) for p, r in sorted(rows_to_unlearn.items())}
    fields = {"rows": rows, "releases": DROP} if drop_releases else {"rows": rows}
    body = canonical_json(fields).encode()
    return Draft("unlearn", body, xxh64_digest(request or body), key)


def parse_removal(body: Body) -> Removal:
    """Return the Removal (rows to unlearn) in an unlearn event's payload."""
    return {int(position): rows for position, rows in json.loads(bytes(body))["rows"].items()}


def parse_rows(
    body: Body, media: str, limits: Limits | None, stream_features: Sequence[str] = (), to_learn: bool = False
) -> Block:
    """Return the rows of an Arrow or JSON payload.

    media: "arrow" or "json".
    limits: limits on the sizes of a payload. None for a payload from the log, whose sizes were
        checked when the payload was appended.
    stream_features, to_learn: parameters of `block_from_arrow`.

    Raises the errors of `arrow.codec`, and LimitExceeded.

    >>> import stream_dr
    >>> stream_dr.parse_rows(b'{"rows": [[1, 2], [3, 1]]}', "json", stream_dr.Limits()).X
    array([[1., 2.],
           [3., 1.]])
    """
    if json_or_arrow(body) != media:
        raise _other_format_error(body, media)
    if media == "arrow":
        batches = read_arrow(body, max_unpacked_bytes=limits.max_body_bytes if limits else None)
        return block_from_arrow(batches, None, stream_features, to_learn)
    if limits and len(body) > limits.max_json_bytes:
        raise LimitExceeded(
            f"JSON body of {len(body)} bytes; at most {limits.max_json_bytes} are taken. Send Arrow, or fewer rows.",
            bytes=len(body),
        )

    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        if describe_other_format(bytes(body[:16]), media):
            raise _other_format_error(body, media) from e
        raise MalformedInput(f"body is not JSON ({e}); send {{'rows': [[…], …], 'labels': […]}}.") from e
    if limits:
        refuse_missing_values(obj)
    return block_from_json(obj)


def _other_format_error(body: Body, media: str) -> MalformedInput:
    actual = describe_other_format(bytes(body[:16]), media) or repr(bytes(body[:6]))
    return MalformedInput(
        f"the body is declared {media}, and is {actual}. Send Arrow, of version 0.15 or later, as Arrow, and JSON as JSON."
    )


def json_or_arrow(body: Body) -> str:
    """Return a payload's format, "json" or "arrow".

    The first bytes decide. `parse_rows` refuses a body whose first bytes contradict its declared
    format, so that an event of the log is read as what it was.
    """
    return "arrow" if bytes(body[:6]).startswith(FIRST_BYTES) else "json"


def one_row(values: Sequence[float], indices: Sequence[int] | None = None) -> Block:
    """Return a Block of one row given as numbers.

    values: values of the row.
    indices: column of each value, in any order, for a sparse row. None for a dense row.

    Raises InvalidRows if a dense row has no values, or if the numbers of indices and values
    differ. Raises InvalidIndex for an index that is negative, repeated or too large.

    >>> import stream_dr
    >>> stream_dr.one_row([1.0, 2.0]).X
    array([[1., 2.]])
    >>> stream_dr.one_row([1.0, 2.0], indices=[0, 7]).features
    8
    """
    if indices is None:
        if not len(values):
            raise InvalidRows("the row has no values; send one number a feature.")
        return Block(np.array([values], dtype=np.float64))

    if len(indices) != len(values):
        raise InvalidRows(f"{len(indices)} indices and {len(values)} values; send as many of one as of the other.")
    row_starts = np.array([0, len(values)], dtype=np.int32)
    X = checked_csr(np.array(values, dtype=np.float64), np.array(indices), row_starts, None)
    return Block(X, width_stated=False)


class RecentDrafts:
    """Drafts in memory that were appended and not learned yet.

    Models that learn from these drafts need not read the log.

    max_bytes: maximum number of bytes of all stored drafts. If there is no room for a draft, the
        draft is not stored.

    Thread-safe.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self._free_bytes = max_bytes
        self._drafts: dict[int, Draft] = {}
        self._lock = threading.Lock()

    def put_if_room(self, position: int, draft: Draft) -> None:
        """Store a draft that was appended, if there is room.

        position: position of the draft's event in the log.
        """
        with self._lock:
            # Store the draft only if there is room.
            # An older draft is not replaced, because models learn the oldest drafts first.
            if draft.size <= self._free_bytes:
                self._drafts[position] = draft
                self._free_bytes -= draft.size

    def consecutive_drafts_after(self, after: int, max_drafts: int) -> list[tuple[int, Draft]]:
        """Return the stored drafts that directly follow a position.

        The list ends at `max_drafts` drafts, or before the first position without a stored draft.
        The drafts stay stored.

        after: the position. The first returned draft is at the next position.
        """
        drafts: list[tuple[int, Draft]] = []
        with self._lock:
            while len(drafts) < max_drafts and (draft := self._drafts.get(after + 1 + len(drafts))) is not None:
                drafts.append((after + 1 + len(drafts), draft))
        return drafts

    def first_position_after(self, after: int, default_position: int) -> int:
        """Return the position of the oldest stored draft past `after`.

        default_position: value to return if no draft past `after` is stored.
        """
        with self._lock:
            return min((position for position in self._drafts if position > after), default=default_position)

    def remove_up_to(self, until: int) -> None:
        """Remove the stored drafts at positions up to `until`."""
        with self._lock:
            for position in [p for p in self._drafts if p <= until]:
                self._free_bytes += self._drafts.pop(position).size


def _block_id_hashes(block: Block) -> np.ndarray | None:
    """Return hashes (rows,) of the rows' ids. None without ids."""
    return None if block.ids is None else id_hashes(block.ids)
