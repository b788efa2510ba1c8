"""Draft: an event offered to the log, with its rows parsed. Receipt: the log's answer.

Rows come as an Arrow or JSON body, as the numbers of one row, or as a batch of a shard. Parsing
and hashing a body is the costly part of taking a batch in. `rows_draft` does both in the caller's
thread, so that the appender only admits and writes.

The log stores a body exactly as it was sent, so that a repetition of the same key with the same
bytes is recognised.
"""

import json
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import orjson
import scipy.sparse as sp

from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import block_from_arrow, block_from_json, read_arrow
from stream_dr.arrow.json_rows import check_gaps
from stream_dr.arrow.rows import MAX_WIDTH
from stream_dr.errors import InvalidIndex, InvalidRows, LimitExceeded, MalformedInput
from stream_dr.log.event import Body, quick_digest, sha256_of
from stream_dr.log.ids import id_hashes
from stream_dr.log.index import LASTING
from stream_dr.models.schema import Limits
from stream_dr.rows.block import Block

REFERENCE = LASTING
"""Prefix of the keys of reference events. Keys of callers may not begin with it."""

Removal = dict[int, Sequence[int] | None]
"""Row numbers to unlearn, by position of their event. None means all rows of the event."""


class Draft(NamedTuple):
    """Event that has no position yet.

    kind: "rows", "reference" or "unlearn".
    body: the bytes that the log stores.
    fingerprint: hex digest that is compared with that of other bodies with the same key.
    key: idempotency key or None.
    block: the parsed rows, of kinds "rows" and "reference". The codec has checked their values.
    rows: number of rows in the event.
    ids: (rows,) hashes of the rows' ids, or None if they have none.
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
        """Number of bytes in memory.

        A compressed body may be much smaller than its rows.
        """
        return max(len(self.body), self.block.nbytes if self.block is not None else 0)


class Receipt(NamedTuple):
    """Position and number of rows of an appended event.

    duplicate: True if the same body was appended before under the same key.
    columns_missing: a table's columns that the rows lack and that are taken as missing.

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
    """Receipt that a draft would get if it were appended.

    >>> import stream_dr
    >>> with stream_dr.Directory("dry-run") as directory:
    ...     directory.check(stream_dr.rows_draft(b'{"rows": [[1, 2], [3, 1]]}', "json"))
    DryRunReceipt(rows=2, duplicate=False, columns_missing=())
    """

    rows: int
    duplicate: bool
    columns_missing: tuple[str, ...]


class Reference(NamedTuple):
    """Batch of a shard that a reference event names.

    pass_number: number of the pass over the data set, from 1.
    """

    uri: str
    sha256: str
    batch: int
    pass_number: int
    rows: int

    @property
    def key(self) -> str:
        """Key in the log, made of the shard's sha256, the batch and the pass."""
        return f"{REFERENCE}{self.sha256}:{self.batch}:{self.pass_number}"


def rows_draft(body: Body, media: str = "arrow", key: str | None = None, limits: Limits | None = None) -> Draft:
    """Return the draft of a batch that was sent as bytes, parsed in full.

    media: "arrow" (an IPC stream or file) or "json".

    Bytes, and a read-only view of bytes that will not change, are not copied. Costs one pass over
    the body. Raises MalformedInput, SchemaMismatch, InvalidIndex, InvalidTargets, InvalidWeights
    or LimitExceeded.

    >>> import stream_dr
    >>> draft = stream_dr.rows_draft(b'{"rows": [[1, 2], [3, 1]], "labels": ["a", "b"]}', "json", key="first")
    >>> draft.rows, draft.key
    (2, 'first')
    """
    block = parse_rows(body, media, limits or Limits())
    stored: Body = body.cast("B") if isinstance(body, memoryview) and body.readonly else bytes(body)
    return Draft("rows", stored, quick_digest(body), key, block, block.rows, _block_id_hashes(block))


def reference_draft(reference: Reference, block: Block) -> Draft:
    """Return the draft of a batch that stays in its shard.

    Its key is made of the shard's sha256, the batch and the pass.
    """
    fields = reference._asdict()
    fields["pass"] = fields.pop("pass_number")
    digest = sha256_of(reference.key.encode())
    return Draft(
        "reference", _canonical_json(fields), digest, reference.key, block, reference.rows, _block_id_hashes(block)
    )


def parse_reference(body: Body) -> Reference:
    """Return the Reference in a reference event's body."""
    fields = json.loads(bytes(body))
    return Reference(fields["uri"], fields["sha256"], fields["batch"], fields["pass"], fields["rows"])


def unlearn_draft(picked: Removal, key: str | None = None, request: bytes | None = None) -> Draft:
    """Return the draft of an event that unlearns rows.

    picked: the rows to unlearn.
    request: bytes of the request, which identify a repetition under the same key. None takes the
    event's body.
    """
    body = _canonical_json({"rows": {str(p): None if r is None else list(r) for p, r in sorted(picked.items())}})
    return Draft("unlearn", body, sha256_of(request or body), key)


def parse_removal(body: Body) -> Removal:
    """Return the Removal in an unlearn event's body."""
    return {int(position): rows for position, rows in json.loads(bytes(body))["rows"].items()}


def parse_rows(body: Body, media: str, limits: Limits | None) -> Block:
    """Return the Block in an Arrow or JSON body.

    limits: None for a body of the log, which was admitted under the limits of its time.

    Raises the errors of `arrow.codec`, and LimitExceeded.

    >>> import stream_dr
    >>> stream_dr.parse_rows(b'{"rows": [[1, 2], [3, 1]]}', "json", stream_dr.Limits()).X
    array([[1., 2.],
           [3., 1.]])
    """
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
    """Return "json" or "arrow", as the first byte of a body tells."""
    return "json" if bytes(body).lstrip()[:1] in (b"{", b"[") else "arrow"


def one_row(values: Sequence[float], indices: Sequence[int] | None = None) -> Block:
    """Return the Block of one row that is given as numbers.

    The row is sparse if indices are given, in any order, else dense.

    Raises InvalidRows if there are no values, or another number of indices than of values. Raises
    InvalidIndex for an index that is negative, repeated or too large.

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
    if len(indices) and not 0 <= min(indices) <= max(indices) < MAX_WIDTH:
        raise InvalidIndex(f"index {min(indices)} … {max(indices)}; indices must be from 0 to {MAX_WIDTH - 1}.", row=0)
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
    """Drafts that were appended and not learned yet, in memory.

    max_bytes: limit on their bytes, as sent or as unpacked.

    If a draft does not fit, it is left out: models learn the oldest drafts first, so those stay.
    Thread-safe.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self._free_bytes = max_bytes
        self._drafts: dict[int, Draft] = {}
        self._lock = threading.Lock()

    def put(self, position: int, draft: Draft) -> None:
        """Store a draft if there is room."""
        with self._lock:
            if draft.size <= self._free_bytes:
                self._drafts[position] = draft
                self._free_bytes -= draft.size

    def take(self, after: int, limit: int) -> list[tuple[int, Draft]]:
        """Return at most `limit` drafts at positions after + 1, after + 2 …, without gap.

        They stay stored.
        """
        drafts: list[tuple[int, Draft]] = []
        with self._lock:
            while len(drafts) < limit and (draft := self._drafts.get(after + 1 + len(drafts))) is not None:
                drafts.append((after + 1 + len(drafts), draft))
        return drafts

    def first(self, after: int, otherwise: int) -> int:
        """Return the oldest stored position past `after`, or `otherwise` if there is none."""
        with self._lock:
            return min((position for position in self._drafts if position > after), default=otherwise)

    def forget(self, until: int) -> None:
        """Drop the drafts at positions up to `until`."""
        with self._lock:
            for position in [p for p in self._drafts if p <= until]:
                self._free_bytes += self._drafts.pop(position).size


def _block_id_hashes(block: Block) -> np.ndarray | None:
    """Return the hashes of the block's ids, or None if it has none."""
    return None if block.ids is None else id_hashes(block.ids)


def _canonical_json(fields: JsonDict) -> bytes:
    """Return an object as canonical JSON."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
