"""Block: one batch as the numerics see it.

A Block is a value; nothing in it is written to. Rows are either a C-ordered ndarray or a scipy CSR matrix with sorted,
distinct indices, float32 or float64 (float32 is cast up where sums are formed, never the whole batch). Targets are a
`Targets` value or, from a caller's own source, anything `parse_targets` takes.

Why this way: the numerics never see Arrow, files or pandas, and a batch arrives without a copy where its layout allows.
"""

from typing import Any, NamedTuple, cast

import numpy as np

from stream_dr.compiled import readonly
from stream_dr.errors import InvalidWeights, NotFinite
from stream_dr.rows.raw_rows import LARGEST, RawRows, refuse_table
from stream_dr.rows.sparse_rows import check_indices, is_sparse

Ids = list[str] | list[int]

Rows = Any
"""(rows, features) ndarray or CSR."""


class Block(NamedTuple):
    """One batch of rows.

    X: (rows, features) C-ordered float32 or float64 ndarray, or CSR with sorted distinct indices; RawRows where a feature
        map makes numbers of them (`table`, `text`).
    y: None, a `Targets`, or raw targets of length rows.
    weights: None or (rows,) float64, each ≥ 0.
    ids: None or a list of rows strings, or of rows integers, echoed by transform.
    names: None or the features' names, in column order.
    width_stated: False when a sparse batch's width is only its largest index so far.
    checked: whether these very rows were looked at as `check_rows` does, and need not be again.
    """

    X: Any
    y: Any = None
    weights: np.ndarray | None = None
    ids: Ids | None = None
    names: tuple[str, ...] | None = None
    width_stated: bool = True
    checked: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def features(self) -> int:
        """Number of columns of this batch; a sparse stream may be wider."""
        return int(self.X.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether rows are CSR."""
        return is_sparse(self.X)

    @property
    def table(self) -> bool:
        """Whether rows are a table's columns, of which a feature map makes numbers."""
        return isinstance(self.X, RawRows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows' numbers."""
        if self.sparse:
            return int(self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes)
        return int(self.X.nbytes)

    def take(self, rows: np.ndarray) -> "Block":
        """The rows of those numbers, (taken,) int64; targets, if any, must be a `Targets`."""
        return self._replace(
            X=self.X[rows],
            y=None if self.y is None else self.y.take(rows),
            weights=None if self.weights is None else self.weights[rows],
            ids=None if self.ids is None else cast(Ids, [self.ids[i] for i in rows.tolist()]),
        )


def check_rows(block: Block) -> None:
    """Raise InvalidIndex or NotFinite for rows that no compiled loop may see, and SchemaMismatch or InvalidRows for
    RawRows; a block that is checked costs nothing."""
    refuse_table(block.X)
    if block.checked:
        return
    if block.sparse:
        check_indices(block.X)
    check_finite(block.X)


def check_finite(X: Rows) -> None:
    """Raise NotFinite naming the first row and column whose value is NaN, infinite or beyond 1e100 in size.

    Cost: a look at every value; a bad one is looked for only where there is one.
    """
    if isinstance(X, RawRows):  # looked at when they were made; NaN is a gap
        return
    values = X.data if is_sparse(X) else X
    if _bounded(values, LARGEST):
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN is found as any other, without a warning
        where = np.argwhere(~(np.abs(values.astype(np.float64)) <= LARGEST))[0]
    if is_sparse(X):
        row = int(np.searchsorted(X.indptr, where[0], side="right")) - 1
        column, value = int(X.indices[where[0]]), values[where[0]]
    else:
        row, column = int(where[0]), int(where[1])
        value = values[row, column]
    shown = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:g}"
    raise NotFinite(
        f"row {row}, column {column} is {shown}; values must be finite and at most 1e100 in size. Remove or replace it.",
        row=row,
        column=column,
    )


def _bounded(values: np.ndarray, most: float) -> bool:
    """Whether every |value| ≤ most; NaN is not."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return not values.size or (float(values.max()) <= most and float(values.min()) >= -most)


def as_weights(weights: Any, rows: int) -> np.ndarray | None:
    """Weights (rows,) as float64, or None; a single number counts for every row. Raises InvalidWeights."""
    if weights is None:
        return None
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise InvalidWeights(f"weights are not numbers ({e}); pass one number ≥ 0 a row.") from e
    if array.ndim == 0:
        array = np.full(rows, float(array))
    if array.shape != (rows,):
        raise InvalidWeights(f"sample_weight.shape == {array.shape}, expected ({rows},): pass one weight a row.")
    if not np.all((array >= 0) & (array <= LARGEST)):
        row = int(np.flatnonzero(~((array >= 0) & (array <= LARGEST)))[0])
        raise InvalidWeights(f"weight {array[row]} of row {row} is not a finite number ≥ 0.", row=row)
    return array


def row_weights(weights: np.ndarray | None, rows: int) -> np.ndarray:
    """Weights (rows,) as compiled loops take them, read-only; ones where none are given."""
    return readonly(np.ones(rows) if weights is None else weights)
