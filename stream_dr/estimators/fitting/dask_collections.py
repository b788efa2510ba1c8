"""Dask collections, learned block by block and projected lazily.

Collections are Dask arrays and dataframes. A collection consists of blocks of rows. A block is a
dense array, a CSR matrix or a part of a dataframe. Each block is learned by its own new estimator,
in the Dask worker that has the block. The states of neighbouring blocks are then merged in pairs,
until one state remains. Only this state is returned to the caller.

Each block costs a merge in addition to learning. If a block is smaller than a state, merging costs
more than learning.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np

from stream_dr.batch.block import Block
from stream_dr.batch.rows import is_dask
from stream_dr.errors import ClusterError, InvalidRows, InvalidTargets

Collection = Any
"""Dask array or dataframe. Dask is imported only when a collection is passed."""

Delayed = Any
"""Dask's delayed object of one block of rows, which is computed later."""


Learner = TypeVar("Learner")
"""Type of an estimator that learns blocks."""


def split_into_blocks(rows: Block) -> list[tuple[Delayed, Delayed | None, Delayed | None]]:
    """Return the blocks of rows, each with its targets and weights.

    A block is a Dask task (Delayed) that computes the rows when they are needed.

    Raises InvalidRows if blocks are split along features. Raises InvalidTargets if the blocks of y
    or weights have other rows than the blocks of X. Raises ClusterError if the cluster has no
    workers.

    rows: Rows, targets and weights. X (rows, features) is a Dask array or a Dask dataframe, whose
        blocks have all features of their rows. y and weights are None, or Dask collections whose
        blocks have the same rows as the blocks of X.
    """
    from dask.base import get_scheduler

    X = rows.X
    columns = [
        _delayed_row_blocks("X", X),
        _delayed_blocks_matching("y", rows.y, X),
        _delayed_blocks_matching("sample_weight", rows.weights, X),
    ]
    # Without an error, Dask would wait for ever for the first worker. Dask's scheduler function is
    # a method of the client if a client is connected. Other schedulers need no workers.
    client = getattr(get_scheduler(), "__self__", None)
    if client is not None and hasattr(client, "scheduler_info") and not client.scheduler_info()["workers"]:
        raise ClusterError("the cluster of Dask's client has no workers; start some, or close the client.")
    return list(zip(*columns, strict=True))


def learn_blocks(
    blocks: list[tuple[Delayed, Delayed | None, Delayed | None]],
    learn: Callable[[Any, Any, Any], Learner],
    merge: Callable[[Learner, Learner], Learner],
) -> Learner:
    """Return the estimator that has learned all blocks.

    blocks: rows, targets and weights of each block.
    learn: function that returns an estimator that has learned one block.
    merge: function that returns an estimator that has learned the rows of two estimators. The
        older rows come first.
    """
    import dask

    # pure=False gives each block a task of its own, also if two blocks are equal.
    # Merge neighbouring results in pairs. If their number is odd, the last one waits for a round.
    parts = [dask.delayed(learn)(*block, pure=False) for block in blocks]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        merged = [dask.delayed(merge)(a, b) for a, b in pairs]
        parts = merged + parts[2 * len(merged) :]

    (result,) = dask.compute(parts[0])
    return result  # type: ignore[no-any-return]


def project_dask_collection(
    collection: Collection, transform: Callable[[Any], np.ndarray], names: list[str]
) -> Collection:
    """Return a lazy Dask collection of the projected rows.

    For a Dask array, the result is a Dask array (rows, components). For a Dask dataframe, the
    result is a Dask dataframe with one column for each component.

    transform: function that projects the rows of a block.
    names: names of the components.
    """
    # The call raises InvalidRows if blocks are split along features. Its result is not used.
    _delayed_row_blocks("X", collection)
    # `meta` is an empty result, from which Dask knows the type and number of columns.
    meta = np.empty((0, len(names)))
    if is_dask(collection, "dask.array"):
        chunks = (collection.chunks[0], (len(names),))
        return collection.map_blocks(_transform_block, transform, dtype=meta.dtype, chunks=chunks, meta=meta)
    dtypes = dict.fromkeys(names, meta.dtype)
    return collection.map_partitions(_transform_to_data_frame, transform, names, meta=dtypes)


def _delayed_row_blocks(argument_name: Literal["X", "y", "sample_weight"], collection: Collection) -> list[Delayed]:
    """Return a Dask collection's blocks of rows as Dask tasks."""
    if not is_dask(collection):
        raise InvalidTargets(
            f"X is a Dask collection and {argument_name} is a {type(collection).__name__}; give {argument_name} as one, "
            "in blocks of the same rows."
        )
    if is_dask(collection, "dask.array") and any(count > 1 for count in collection.numblocks[1:]):
        raise InvalidRows(
            f"{argument_name} is split along its features into {collection.numblocks[1]} blocks; a row must be whole. Call "
            f"{argument_name}.rechunk({{1: -1}}) first."
        )
    return list(np.ravel(collection.to_delayed()))


def _delayed_blocks_matching(
    argument_name: Literal["y", "sample_weight"], collection: Collection, X_collection: Collection
) -> list[Delayed | None]:
    """Return targets or weights, one block per block of rows.

    A block is a Dask task (Delayed) that computes its values when they are needed. Each returned
    block belongs to the same rows as its block of `X_collection`. If `collection` is None, None is
    returned for each block. Raises InvalidTargets if the blocks of `X_collection` and `collection`
    do not match.

    argument_name: argument of `fit` that has the collection, for error messages.
    collection: targets or weights of the rows, or None.
    X_collection: the rows.
    """
    count = X_collection.npartitions
    if collection is None:
        return [None] * count

    blocks = _delayed_row_blocks(argument_name, collection)
    lengths = _block_lengths(collection)
    X_lengths = _block_lengths(X_collection)
    known = not np.isnan([*lengths, *X_lengths]).any()
    # If lengths are not known, match the blocks one by one, and check only their number.
    if not known and len(blocks) == count:
        return blocks
    if known and lengths == X_lengths:
        return blocks
    # Cut an array of equally many rows into the blocks of `X_collection`.
    if known and sum(lengths) == sum(X_lengths):
        return _delayed_row_blocks(argument_name, collection.rechunk({0: X_lengths}))
    raise InvalidTargets(
        f"{argument_name} has {len(blocks)} blocks and X {count}, of unknown or other numbers of rows. "
        "Give both in blocks of the same rows; compute_chunk_sizes() makes an array's known."
    )


def _block_lengths(collection: Collection) -> tuple[float, ...]:
    """Return the number of rows of each block, (NaN,) if unknown."""
    # An array has `chunks`, with the lengths of its blocks along each axis. A dataframe has none.
    chunks: tuple[tuple[float, ...], ...] = getattr(collection, "chunks", ((np.nan,),))
    return chunks[0]


def _transform_block(rows: Any, transform: Callable[[Any], np.ndarray]) -> np.ndarray:
    return np.asarray(transform(rows), dtype=np.float64)


def _transform_to_data_frame(rows: Any, transform: Callable[[Any], np.ndarray], column_names: list[str]) -> Any:
    # The rows of one part of a dataframe, and the result, are pandas dataframes.
    import pandas as pd

    return pd.DataFrame(_transform_block(rows, transform), columns=column_names, index=rows.index)
