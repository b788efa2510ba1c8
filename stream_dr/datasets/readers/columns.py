"""columns: a table's columns to a Block, by the part each plays.

Columns named as label, labels, target, weight or id are those; all others are features, dense, names kept, in the file's
order. Shared by csv and Parquet.

Why this way: both formats give Arrow batches, and what a column means is the caller's to say, not the format's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.block import Block
from stream_dr.errors import InvalidTargets, SchemaMismatch
from stream_dr.targets import Targets, class_targets, continuous_targets


class Roles(NamedTuple):
    """Which columns are no features.

    label: one label a row. labels: indicator columns (0 or 1), their names being the labels. target: continuous columns.
    weight, id: as they say. drop: columns left out.
    """

    label: str | None = None
    labels: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    weight: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()

    def taken(self) -> tuple[str, ...]:
        """All columns that are no features. Raises InvalidTargets when more than one kind of targets is named."""
        if (self.label is not None) + bool(self.labels) + bool(self.target) > 1:
            raise InvalidTargets("columns are given as more than one of label, labels and target; give one kind.")
        single = tuple(c for c in (self.label, self.weight, self.id) if c is not None)
        return single + self.labels + self.target + self.drop

    def features(self, columns: Sequence[str]) -> list[str]:
        """The feature columns among `columns`. Raises SchemaMismatch naming a column that is not there."""
        taken = self.taken()
        for name in taken:
            if name not in columns:
                raise SchemaMismatch(f"there is no column {name!r}; there are {list(columns)[:10]} …")
        features = [c for c in columns if c not in taken]
        if not features:
            raise SchemaMismatch("no column is left for the features.")
        return features


def block_of(batch: pa.RecordBatch, features: Sequence[str], roles: Roles) -> Block:
    """One Block of a record batch. Raises SchemaMismatch naming a column that is not numbers or has nulls."""
    X = np.empty((batch.num_rows, len(features)))
    for j, name in enumerate(features):
        X[:, j] = numbers(batch.column(name), name)
    weights = None if roles.weight is None else numbers(batch.column(roles.weight), roles.weight)
    ids = None if roles.id is None else [str(v) for v in batch.column(roles.id).to_pylist()]
    return Block(X, targets_of(batch, roles), weights, ids, tuple(features))


def targets_of(batch: pa.RecordBatch, roles: Roles) -> Targets | None:
    """The batch's targets by their columns, or None. A row whose label is empty has no target."""
    if roles.label is not None:
        return class_targets([None if v == "" else v for v in batch.column(roles.label).to_pylist()])
    if roles.labels:
        Y = np.column_stack([numbers(batch.column(name), name) for name in roles.labels])
        if not np.all((Y == 0) | (Y == 1)):
            column = roles.labels[int(np.argwhere((Y != 0) & (Y != 1))[0][1])]
            raise InvalidTargets(f"label column {column!r} has values other than 0 and 1; give it as target.")
        indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(Y, axis=1)))).astype(np.int64)
        return Targets("multilabel", roles.labels, np.nonzero(Y)[1].astype(np.int32), indptr)
    if roles.target:
        return continuous_targets(np.column_stack([numbers(batch.column(name), name) for name in roles.target]))
    return None


def numbers(column: Any, name: str) -> np.ndarray:
    """A column as (rows,) float64. Raises SchemaMismatch."""
    if column.null_count:
        row = next(i for i, v in enumerate(column.to_pylist()) if v is None)
        raise SchemaMismatch(f"column {name!r} has no value in row {row} of the batch; fill or drop it.", row=row)
    try:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatch(
            f"column {name!r} is {column.type}, not numbers ({e}); name it as label or drop it."
        ) from e
