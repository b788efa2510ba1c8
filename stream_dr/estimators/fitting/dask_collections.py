"""Dask collections, learned block by block and projected lazily.

Collections are Dask arrays and dataframes. A collection consists of blocks of rows. A block is a
dense array, a CSR matrix or a part of a dataframe. Each block is learned by its own new estimator,
in the Dask worker that has the block. The states of neighbouring blocks are then merged in pairs,
until one state remains. Only this state is returned to the caller.

Each block costs a merge in addition to learning. If a block is smaller than a state, merging costs
more than learning.
"""

from copy import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import clone

from stream_dr.errors import CannotMerge, ClusterError, InvalidRows, InvalidTargets
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import can_merge_parts
from stream_dr.estimators.fitting.stream_learner import FittedState, new_fitted_state
from stream_dr.rows.block import Block
from stream_dr.rows.kinds import DASK, Kind, rows_kind
from stream_dr.targets.parsing import parse_targets

if TYPE_CHECKING:
    import pandas as pd

    from stream_dr.estimators.fitting.estimator import Estimator

Collection = Any
"""Dask array or dataframe. Dask is imported only when a collection is passed."""

Delayed = Any
"""Dask's delayed object of one block of rows, which is computed later."""


def learn_dask_collections(estimator: "Estimator", rows: Block) -> FittedState:
    """Learn Dask collections and return the fitted state.

    Parameters
    ----------
    estimator : Estimator
        Estimator whose parameters are used to learn. The estimator is unchanged.
    rows : Block
        Rows, targets and weights. X (rows, features) is a Dask array or a Dask dataframe, whose
        blocks have all features of their rows. y and weights are None, or Dask collections whose
        blocks have the same rows as the blocks of X.

    Raises
    ------
    InvalidRows
        If blocks are split along features.
    InvalidTargets
        If the blocks of y or weights have other rows than the blocks of X.
    CannotMerge
        If states of the estimator cannot be merged.
    ClusterError
        If the cluster has no workers.
    """
    import dask

    if not can_merge_parts(estimator):
        raise _cannot_learn_blocks_error(estimator)

    X = rows.X
    blocks = [
        _delayed_row_blocks("X", X),
        _delayed_blocks_matching("y", rows.y, X),
        _delayed_blocks_matching("sample_weight", rows.weights, X),
    ]
    _check_dask_has_workers()

    # Learn each block, then merge the states of neighbouring blocks in pairs.
    learner = _clone_with_target_kind(estimator, blocks[1][0])
    parts = [dask.delayed(_fit_clone_on_block)(learner, *block, pure=False) for block in zip(*blocks, strict=True)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [dask.delayed(_merge_into_copy)(a, b) for a, b in pairs] + parts[len(parts) // 2 * 2 :]

    (merged,) = dask.compute(parts[0])
    return new_fitted_state(estimator, merged.state_, merged.fitted_.names)


def project_dask_collection(estimator: "Estimator", collection: Collection) -> Collection:
    """Return a lazy Dask collection of the projected rows.

    For a Dask array, the result is a Dask array (rows, components). For a Dask dataframe, the
    result is a Dask dataframe with one column for each component.
    """
    _delayed_row_blocks("X", collection)
    width = estimator.rank_
    if rows_kind(collection) is Kind.DASK_ARRAY:
        meta = np.empty((0, width))
        return collection.map_blocks(
            _transform_block, estimator, dtype=meta.dtype, chunks=(collection.chunks[0], (width,)), meta=meta
        )
    import pandas as pd

    names = list(estimator.get_feature_names_out())
    meta_frame = pd.DataFrame(np.empty((0, width)), columns=names)
    return collection.map_partitions(_transform_to_data_frame, estimator, names, meta=meta_frame)


def _cannot_learn_blocks_error(estimator: "Estimator") -> CannotMerge:
    """Return the error for an estimator that cannot learn Dask collections.

    The blocks of a collection are learned separately, and the states of such an estimator cannot be
    merged.
    """
    if estimator.merges:
        return CannotMerge(
            "every block would draw landmarks of its own; give them: nystroem(landmarks=rows), or call partial_fit with one "
            "block after the other."
        )
    return CannotMerge(
        f"{type(estimator).__name__} learns one row after the other; blocks of a Dask collection are learned side by side. "
        f"Use {estimator.merges_as or 'one'}, whose states merge, or call partial_fit with one block after the other."
    )


def _check_dask_has_workers() -> None:
    """Raise ClusterError if Dask's cluster has no workers.

    Without this error, Dask would wait for ever.
    """
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    if client is not None and hasattr(client, "scheduler_info") and not client.scheduler_info()["workers"]:
        raise ClusterError("the cluster of Dask's client has no workers; start some, or close the client.")


def _delayed_row_blocks(argument_name: Literal["X", "y", "sample_weight"], collection: Collection) -> list[Delayed]:
    """Return the collection's blocks of rows, as Dask's delayed objects.

    Raises InvalidTargets if `collection` is no Dask collection. Raises InvalidRows if its blocks
    are split along features.

    argument_name: argument of `fit` that has the collection, for error messages.
    """
    if rows_kind(collection) not in DASK:
        raise InvalidTargets(
            f"X is a Dask collection and {argument_name} is a {type(collection).__name__}; give {argument_name} as one, "
            "in blocks of the same rows."
        )
    if len(getattr(collection, "numblocks", (1,))) > 1 and any(count > 1 for count in collection.numblocks[1:]):
        raise InvalidRows(
            f"{argument_name} is split along its features into {collection.numblocks[1]} blocks; a row must be whole. Call "
            f"{argument_name}.rechunk({{1: -1}}) first."
        )
    return list(np.ravel(collection.to_delayed()))


def _delayed_blocks_matching(
    argument_name: Literal["y", "sample_weight"], collection: Collection, X_collection: Collection
) -> list[Delayed | None]:
    """Return targets or weights, one block per block of rows.

    Each returned block belongs to the same rows as its block of `X_collection`. If `collection` is
    None, None is returned for each block. Raises InvalidTargets if the blocks of `X_collection`
    and `collection` do not match.

    argument_name: argument of `fit` that has the collection, for error messages.
    collection: targets or weights of the rows, or None.
    X_collection: the rows.
    """
    # Read the number of rows of each block. Dask dataframes do not know it, so NaN is used.
    rows = getattr(X_collection, "chunks", ((np.nan,),))[0]
    count = X_collection.npartitions
    if collection is None:
        return [None] * count

    blocks = _delayed_row_blocks(argument_name, collection)
    chunks = getattr(collection, "chunks", ((np.nan,),))[0]

    # Cut an array into the blocks of `X_collection`, if all lengths are known.
    known = not np.isnan([*rows, *chunks]).any()
    if known and chunks != rows and sum(chunks) == sum(rows):
        return _delayed_row_blocks(argument_name, collection.rechunk({0: rows}))
    if len(blocks) != count or (known and chunks != rows):
        raise InvalidTargets(
            f"{argument_name} has {len(blocks)} blocks and X {count}, of unknown or other numbers of rows. "
            "Give both in blocks of the same rows; compute_chunk_sizes() makes an array's known."
        )
    return blocks


def _clone_with_target_kind(estimator: "Estimator", first_targets_block: Collection) -> "Estimator":
    """Return a new estimator whose kind of targets is fixed.

    The kind of the first block is set as the parameter `target`, so that all blocks are learned
    with the same kind of targets. The other parameters are unchanged.

    first_targets_block: first block of the targets, or None.
    """
    learner: Estimator = clone(estimator)
    if first_targets_block is not None and estimator.target == "auto" and estimator.target_kinds:
        first = first_targets_block.compute()
        learner.set_params(target=parse_targets(first, len(first), estimator.target_kinds, "auto", None).kind)
    return learner


def _fit_clone_on_block(estimator: "Estimator", X: RowsLike, y: TargetsLike, weights: WeightsLike) -> "Estimator":
    options = {} if weights is None else {"sample_weight": weights}
    learner: Estimator = clone(estimator)
    return learner.partial_fit(X, y, **options)


def _merge_into_copy(older: "Estimator", newer: "Estimator") -> "Estimator":
    return copy(older).merge(newer)


def _transform_block(rows: RowsLike, estimator: "Estimator") -> np.ndarray:
    return np.asarray(estimator.transform(rows), dtype=np.float64)


def _transform_to_data_frame(rows: "pd.DataFrame", estimator: "Estimator", column_names: list[str]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(_transform_block(rows, estimator), columns=column_names, index=rows.index)
