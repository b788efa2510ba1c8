"""Limits of a directory, and what they bound of a model."""

from typing import NamedTuple

from stream_dr.batch.schema import Schema
from stream_dr.estimators.fitting.estimator import Estimator

MEBIBYTE = 1 << 20


class Limits(NamedTuple):
    """Limits of a directory.

    max_features: largest number of columns.
    max_labels: largest number of distinct labels, or of columns of continuous targets.
    max_text: largest number of characters of a label, an id, a column name or a category.
    max_state_bytes: largest number of bytes of one model's state.
    min_free_bytes: number of bytes that must be free on the disk before an append.
    max_body_bytes: largest number of bytes of one batch. The limit is applied to the batch as
        sent, and to the decompressed batch.
    max_json_bytes: largest number of bytes of one batch sent as JSON.
    max_queue_bytes: largest number of bytes of request bodies that wait in memory.
    max_lag: largest number of events that a live model may be behind the end of the log. New
        batches are refused while a live model is more events behind.
    keep_versions: number of projections stored for each model.

    >>> import stream_dr
    >>> stream_dr.Limits(max_features=100).max_features
    100
    """

    max_features: int = 1_000_000
    max_labels: int = 1_000
    max_text: int = 1_000
    max_state_bytes: int = 2048 * MEBIBYTE
    min_free_bytes: int = 1024 * MEBIBYTE
    max_body_bytes: int = 64 * MEBIBYTE
    max_json_bytes: int = MEBIBYTE
    max_queue_bytes: int = 256 * MEBIBYTE
    max_lag: int = 10_000
    keep_versions: int = 32


def bound_state_bytes(estimator: Estimator, schema: Schema) -> int:
    """Return the maximum number of bytes of an estimator's state."""
    return estimator.max_state_bytes(schema.features, max(1, schema.n_targets), schema.families or None)
