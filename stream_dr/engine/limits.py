"""Limits: what a directory refuses to grow past. Units stand beside each field; the service's settings carry the same
names.

Why this way: a stream that outgrows its machine is refused before it is written down, with the number it would have
needed, instead of ending the process later.
"""

from typing import NamedTuple

MEBIBYTE = 1 << 20


class Limits(NamedTuple):
    """Limits of one directory.

    max_features: columns. max_labels: distinct labels, or columns of continuous targets. max_state_bytes: bytes of one
    model's state. min_free_bytes: bytes the disk must have free before an append. max_body_bytes: bytes of one batch,
    as sent and as decompressed. max_json_bytes: bytes of one batch sent as JSON. max_queue_bytes: bytes of bodies
    waiting in memory. max_lag: events a model may be behind before new batches are refused. keep_versions: projections
    kept a model.
    """

    max_features: int = 1_000_000
    max_labels: int = 1_000
    max_state_bytes: int = 2048 * MEBIBYTE
    min_free_bytes: int = 1024 * MEBIBYTE
    max_body_bytes: int = 64 * MEBIBYTE
    max_json_bytes: int = MEBIBYTE
    max_queue_bytes: int = 256 * MEBIBYTE
    max_lag: int = 10_000
    keep_versions: int = 32
