"""Block: one batch as the numerics see it.

A Block is a value; nothing in it is written to. Rows are either a C-ordered ndarray or a scipy CSR matrix with sorted,
distinct indices, float32 or float64 (float32 is cast up where sums are formed, never the whole batch). Targets are a
`Targets` value or, from a caller's own source, anything `parse_targets` takes.

Why this way: the numerics never see Arrow, files or pandas, and a batch arrives without a copy where its layout allows.
"""

from os import PathLike
from typing import Any, NamedTuple, cast

import numpy as np

from stream_dr.compiled import readonly
from stream_dr.errors import InvalidRows, InvalidWeights, NotFinite, NotNumeric
from stream_dr.rows.frames import is_frame, matrix_of, table_of
from stream_dr.rows.raw_rows import LARGEST, RawRows, refuse_raw
from stream_dr.rows.sparse_rows import as_csr, check_indices, is_sparse, refuse_complex

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


def as_rows(X: Any) -> tuple[Rows, tuple[str, ...] | None]:
    """Rows (rows, features) as a C-ordered ndarray or CSR, and the columns' names where X is a table of named columns.

    Takes ndarray, array-likes, any scipy sparse format (converted to CSR once), rows that are dicts, and what frames.py
    knows as a table; float32 stays float32, all else becomes float64; a C-ordered float array is not copied. Raises
    InvalidRows, InvalidIndex or NotFinite.
    """
    if is_sparse(X):
        matrix = as_csr(X)
        check_finite(matrix)
        return matrix, None
    table = table_of(X) if is_frame(X) else None
    if table is not None:
        array, names = matrix_of(table)
    else:
        names = _names(X)
        array = _matrix(X.to_numpy() if hasattr(X, "sparse") and hasattr(X, "dtypes") else X)
    check_finite(array)
    return array, names


def _matrix(X: Any) -> np.ndarray:
    """Array-like X as a C-ordered (rows, features) array of floats."""
    try:
        array = np.asarray(X)
        if array.dtype == object and array.ndim == 1 and all(hasattr(row, "__len__") for row in array):
            array = np.asarray(array.tolist())  # a column of vectors
    except ValueError as e:
        raise InvalidRows(f"rows are not a table ({e}); give every row the same number of features.") from e
    if array.ndim == 0 and array.dtype.kind in "OSU":
        raise _not_taken(X)
    refuse_complex(array)
    if array.dtype not in (np.float32, np.float64):
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as e:
            kind = NotNumeric if isinstance(e, TypeError) else InvalidRows
            raise kind(f"rows of dtype {array.dtype} are not numbers ({e}); pass numeric columns only.") from e
    if array.ndim != 2:
        raise InvalidRows(
            f"Expected 2D array, got {array.ndim}D array instead: rows must be (rows, features). "
            "Reshape your data with X.reshape(1, -1) for one row or X.reshape(-1, 1) for one feature."
        )
    return np.ascontiguousarray(array)


def _not_taken(X: Any) -> NotNumeric:
    """The error that says that X is nothing rows can be made of."""
    if isinstance(X, str | PathLike):
        return NotNumeric(f"X is the text {str(X)[:80]!r}; stream_dr.fit(estimator, path, label=…) reads files.")
    kind = f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
    return NotNumeric(
        f"X is of type {kind}; pass an array, a scipy sparse matrix, a list of rows, or a pandas, polars or Arrow table. "
        "Batches that come one by one go to partial_fit."
    )


def check_rows(block: Block) -> None:
    """Raise InvalidIndex or NotFinite for rows that no compiled loop may see, and SchemaMismatch or InvalidRows for
    RawRows; a block that is checked costs nothing."""
    if isinstance(block.X, RawRows):
        refuse_raw(block.X)
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


def _names(X: Any) -> tuple[str, ...] | None:
    """Column names of a table whose columns are all named by strings. Raises InvalidRows for a name that comes twice."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None)
    if names is None or not all(isinstance(n, str) for n in names):
        return None
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InvalidRows(f"two columns are called {twice!r}; give every column a name of its own.")
    return tuple(str(n) for n in names) or None
