"""Decode: bytes and events back to Blocks, in the stream's own order of columns.

A body is Arrow or JSON, told apart by its first bytes. A reference event names a batch of a shard; shards are found once
(places.py), and kept. Rows of a named stream come out in the stream's order of columns, whatever order they were sent in.

Why this way: an event's Block depends on the event and the schema alone, so every model that reads it sees the same
numbers.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from stream_dr.arrow.csr import sound_csr
from stream_dr.block import Block
from stream_dr.engine.limits import Limits
from stream_dr.engine.schema import Schema
from stream_dr.errors import DamagedFile, LimitExceeded, MalformedInput, SchemaMismatch
from stream_dr.log.event import Body


def parse_rows(body: Body, media: str, limits: Limits) -> Block:
    """The Block in an Arrow or JSON body. Raises what arrow.codec raises, and LimitExceeded."""
    from stream_dr.arrow import codec

    if media == "json":
        if len(body) > limits.max_json_bytes:
            raise LimitExceeded(
                f"JSON body of {len(body)} bytes; at most {limits.max_json_bytes} are taken. Send Arrow, or fewer rows.",
                bytes=len(body),
            )
        return codec.block_from_json(_json(body))
    return codec.block_from_arrow(codec.read_arrow(body, max_bytes=limits.max_body_bytes))


def _json(body: Body) -> Any:
    import orjson

    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise MalformedInput(f"body is not JSON ({e}); send {{'rows': [[…], …], 'labels': […]}}.") from e


def media_of(body: bytes) -> str:
    """ "json" or "arrow", by the first byte."""
    return "json" if body.lstrip()[:1] in (b"{", b"[") else "arrow"


def in_order(block: Block, schema: Schema) -> Block:
    """The block with named columns in the stream's order and a stated width filled up; no copy where nothing
    changes."""
    if schema.names is not None and block.names is not None and block.names != schema.names:
        at = {name: i for i, name in enumerate(block.names)}
        missing = [name for name in schema.names if name not in at]
        if missing or len(at) != len(schema.names):
            extra = [name for name in block.names if name not in schema.names]
            raise SchemaMismatch(
                f"batch lacks columns {missing[:5]} and has unknown columns {extra[:5]}; "
                f"this stream has {len(schema.names)} named columns. Send exactly those."
            )
        order = [at[name] for name in schema.names]
        block = block._replace(X=np.ascontiguousarray(block.X[:, order]), names=schema.names)
    if block.sparse and schema.layout == "sparse":
        block = block._replace(width_stated=schema.stated > 0)
        if block.features < schema.stated:
            block = block._replace(X=_widened(block.X, schema.stated))
    return block


def _widened(X: Any, width: int) -> Any:
    """The same CSR rows in a matrix of `width` columns; shares all arrays."""
    return sound_csr(X.data, X.indices, X.indptr, (X.shape[0], width))


def check_intact(event: Any) -> None:
    """Raise DamagedFile for an event whose body is not what was written: a number with a flipped bit is a number still."""
    if not event.intact:
        raise DamagedFile(
            f"the body of the event at position {event.position} is not what was written. Restore the log from a copy; "
            "models keep serving from their snapshots.",
            position=event.position,
        )


class Decoder:
    """Reads events into Blocks; keeps the shards it has found. directory: whose table says where moved shards are, or None.
    One owner (thread) each."""

    def __init__(self, limits: Limits | None = None, directory: Path | None = None) -> None:
        self.limits, self._directory = limits or Limits(), directory
        self._shards: dict[tuple[str, str], Any] = {}

    def block(self, event: Any, schema: Schema) -> Block:
        """The Block of a "rows" or "reference" event, columns in the schema's order.

        Raises SourceMissing or DamagedShard when a referenced shard is not there or is not what it was, and DamagedFile.
        """
        check_intact(event)
        if event.kind == "reference":
            return in_order(self._referenced(json.loads(event.body)), schema)
        return in_order(parse_rows(event.body, media_of(event.body), self.limits), schema)

    def _referenced(self, facts: dict[str, Any]) -> Block:
        from stream_dr.engine.places import find_shard

        where = (facts["uri"], facts["sha256"])
        shard = self._shards.get(where)
        if shard is None:
            shard = self._shards[where] = find_shard(self._directory, *where)
        return shard.read(facts["batch"])
