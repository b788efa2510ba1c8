"""dask_collections: Dask arrays and dataframes, learned block by block wherever Dask runs, and projected lazily.

Each block of rows is learned by an estimator of its own, and their states are merged, two neighbours at a time, so that
states go from worker to worker and one alone comes back. A block is dense, CSR, or part of a dataframe with names.

Cost: what learning costs, and a merge a block: blocks of fewer bytes than a state has cost more in merges than in rows.
"""

from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from stream_dr.errors import CannotMerge, ClusterError, InvalidRows, InvalidTargets
from stream_dr.estimators.fitting.holder import Holder, held
from stream_dr.estimators.fitting.mapping import merges_parts
from stream_dr.rows.block import Block
from stream_dr.rows.kinds import DASK, Kind, kind_of
from stream_dr.targets.parsing import parse_targets


def holder_of(estimator: Any, given: Block) -> Holder:
    """What an estimator holds that has learned all blocks.

    given: X (rows, features) an array in blocks of whole rows, or a dataframe; y, weights None, or collections in blocks of
    the same rows. Raises what learning raises, InvalidRows (blocks split along features), InvalidTargets (other blocks),
    CannotMerge (a recurrence) and ClusterError (no workers).
    """
    import dask

    if not merges_parts(estimator):
        raise _one_after_the_other(estimator)
    X = given.X
    blocks = [_blocks("X", X), _beside("y", given.y, X), _beside("sample_weight", given.weights, X)]
    _check_workers()
    made = _with_kind(estimator, blocks[1][0])
    parts = [dask.delayed(_learned)(made, *given, pure=False) for given in zip(*blocks, strict=True)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [dask.delayed(_merged)(a, b) for a, b in pairs] + parts[len(parts) // 2 * 2 :]
    (found,) = dask.compute(parts[0])
    return held(estimator, found.state_, found.holder_.names)


def projected(estimator: Any, X: Any) -> Any:
    """The collection's rows projected, lazily and block by block: (rows, components) array, or a dataframe of components."""
    _blocks("X", X)
    width = estimator.rank_
    if kind_of(X) is Kind.DASK_ARRAY:
        meta = np.empty((0, width))
        return X.map_blocks(_transformed, estimator, dtype=meta.dtype, chunks=(X.chunks[0], (width,)), meta=meta)
    import pandas as pd

    names = list(estimator.get_feature_names_out())
    meta_frame = pd.DataFrame(np.empty((0, width)), columns=names)
    return X.map_partitions(_frame, estimator, names, meta=meta_frame)


def _one_after_the_other(estimator: Any) -> CannotMerge:
    if estimator.merges:
        return CannotMerge(
            "every block would draw landmarks of its own; give them: nystroem(landmarks=rows), or call partial_fit with one "
            "block after the other."
        )
    return CannotMerge(
        f"{type(estimator).__name__} learns one row after the other; blocks of a Dask collection are learned side by side. "
        f"Use {estimator.merges_as or 'one'}, whose states merge, or call partial_fit with one block after the other."
    )


def _check_workers() -> None:
    """Raise ClusterError where Dask is to run on a cluster without workers, which would wait for ever."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    if client is not None and hasattr(client, "scheduler_info") and not client.scheduler_info()["workers"]:
        raise ClusterError("the cluster of Dask's client has no workers; start some, or close the client.")


def _blocks(name: str, given: Any) -> list[Any]:
    """The collection's blocks of rows, as Dask's delayed values."""
    if kind_of(given) not in DASK:
        raise InvalidTargets(
            f"X is a Dask collection and {name} is a {type(given).__name__}; give {name} as one, in blocks of the same rows."
        )
    if len(getattr(given, "numblocks", (1,))) > 1 and any(count > 1 for count in given.numblocks[1:]):
        raise InvalidRows(
            f"{name} is split along its features into {given.numblocks[1]} blocks; a row must be whole. Call "
            f"{name}.rechunk({{1: -1}}) first."
        )
    return list(np.ravel(given.to_delayed()))


def _beside(name: str, given: Any, X: Any) -> list[Any]:
    """The blocks of what goes with X's rows; None each where nothing is given."""
    rows = getattr(X, "chunks", ((np.nan,),))[0]  # a dataframe's are not known
    count = X.npartitions
    if given is None:
        return [None] * count
    blocks = _blocks(name, given)
    chunks = getattr(given, "chunks", ((np.nan,),))[0]
    known = not np.isnan([*rows, *chunks]).any()
    if known and chunks != rows and sum(chunks) == sum(rows):
        return _blocks(name, given.rechunk({0: rows}))
    if len(blocks) != count or (known and chunks != rows):
        raise InvalidTargets(
            f"{name} has {len(blocks)} blocks and X {count}, of unknown or other numbers of rows. Give both in blocks of "
            "the same rows; compute_chunk_sizes() makes an array's known."
        )
    return blocks


def _with_kind(estimator: Any, y: Any) -> Any:
    """A new estimator of the same parameters, the kind of targets decided by the first block, as in a stream."""
    made = clone(estimator)
    if y is not None and getattr(estimator, "target", None) == "auto" and estimator.target_kinds:
        first = y.compute()
        made.set_params(target=parse_targets(first, len(first), estimator.target_kinds, "auto", None).kind)
    return made


def _learned(estimator: Any, X: Any, y: Any, weights: Any) -> Any:
    options = {} if weights is None else {"sample_weight": weights}
    return clone(estimator).partial_fit(X, y, **options)


def _merged(older: Any, newer: Any) -> Any:
    return copy(older).merge(newer)


def _transformed(block: Any, estimator: Any) -> np.ndarray:
    return np.asarray(estimator.transform(block), dtype=np.float64)


def _frame(part: Any, estimator: Any, names: list[str]) -> Any:
    import pandas as pd

    return pd.DataFrame(_transformed(part, estimator), columns=names, index=part.index)
