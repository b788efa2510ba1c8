"""arrow_rows: the feature columns of a batch ↔ rows of a Block.

Three layouts: `features` (dense), `indices` + `values` (sparse), plain numeric columns (dense, named).

Cost: no copy where numbers lie as a Block wants them; plain columns are copied once into a C-ordered array.

Why this way: a slice's offsets do not start at 0 and what lies outside it is not looked at; two list columns describe one
CSR matrix only if their offsets agree; a null slot reads as 0.0, so nulls are refused. Each message names its column.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from stream_dr.arrow.targets import TARGET_COLUMNS, first_null, is_list, offsets_of
from stream_dr.errors import InvalidIndex, InvalidRows, SchemaMismatch
from stream_dr.rows.block import Block
from stream_dr.rows.table_rows import arrow_from_raw, is_numeric, numbers_of

if TYPE_CHECKING:
    import scipy.sparse as sp

BESIDE = (*TARGET_COLUMNS, "weight", "id")
"""Columns that may stand beside the features."""

RESERVED = ("features", "indices", "values", *BESIDE)
"""Names no feature may have."""


WIDEST = 2**31 - 1
"""Width no sparse batch may pass: indices are int32."""


def is_layout(names: Sequence[str]) -> bool:
    """Whether these columns are rows as a shard has them: `features`, or `indices` and `values`."""
    return "features" in names or {"indices", "values"} <= set(names)


def check_columns(names: list[str], dense: bool, sparse: bool) -> None:
    """Refuse columns of no known layout, twice-named ones, and half a layout."""
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise SchemaMismatch(f"column {twice} comes twice; name each column once.", column=twice)
    if dense or sparse:
        known = (*BESIDE, *(("features",) if dense else ("indices", "values")))
        extra = next((name for name in names if name not in known), None)
        if extra is not None:
            raise SchemaMismatch(
                f"column {extra} has no place beside {'features' if dense else 'indices and values'}; leave it out.",
                column=extra,
            )
    if sparse and not ("indices" in names and "values" in names):
        missing = "values" if "indices" in names else "indices"
        raise SchemaMismatch(f"column {missing} is missing: sparse rows need indices and values.", column=missing)


def dense_rows(column: pa.Array) -> np.ndarray:
    """Rows (rows, d) float32 or float64 of column `features`, fixed_size_list<float|double, d>; a view where it can be.

    Raises SchemaMismatch (another type) and InvalidRows (a null).
    """
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or kind.list_size == 0:
        raise SchemaMismatch(f"column features is {kind}; it must be fixed_size_list<double, d>.", column="features")
    d = kind.list_size
    flat = column.values.slice(column.offset * d, len(column) * d)
    refuse_null(column, "features")
    if flat.null_count:
        row, feature = divmod(first_null(flat), d)
        raise InvalidRows(f"row {row}, column {feature} is null; send a number.", row=row, column=feature)
    return _numbers(flat, "features").reshape(len(column), d)


def sparse_rows(batch: pa.RecordBatch, stated: int | None, max_features: int | None) -> "sp.csr_matrix":
    """CSR rows (rows, `stated` or largest index + 1) of columns `indices` and `values`, sorted, without repeats.

    Raises SchemaMismatch (another type), InvalidRows (nulls, lists of two lengths) and InvalidIndex (below 0, repeated, at
    or past the stated width or max_features).
    """
    indices, indptr = _flat_list(batch.column("indices"), "indices")
    values, value_indptr = _flat_list(batch.column("values"), "values")
    _refuse_lengths(indptr, value_indptr)
    if not pa.types.is_integer(indices.type):
        raise SchemaMismatch(f"column indices holds {indices.type}; it must be list<int32>.", column="indices")
    columns = numbers_of(indices)
    _refuse_outside(columns, indptr, min(stated or WIDEST, WIDEST if max_features is None else max_features))
    width = stated or (int(columns.max()) + 1 if len(columns) else 0)
    return canonical_csr(_numbers(values, "values"), columns.astype(np.int32, copy=False), indptr, width)


@np.errstate(invalid="ignore")  # a signalling NaN warns when it is cast; it is refused in any case
def plain_rows(batch: pa.RecordBatch) -> tuple[np.ndarray, tuple[str, ...]]:
    """Rows (rows, features) and names of all numeric columns beside targets, weight and id; float32 if all are, else
    float64. Copies. Raises SchemaMismatch (no column, or one without numbers) and InvalidRows (a null)."""
    names = tuple(name for name in batch.schema.names if name not in BESIDE)
    if not names:
        raise SchemaMismatch("the batch has no features: send features, or indices and values, or numeric columns.")
    columns = [batch.column(name) for name in names]
    for name, column in zip(names, columns, strict=True):
        _check_plain(name, column)
    single = all(pa.types.is_float32(column.type) for column in columns)
    X = np.empty((batch.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    for i, column in enumerate(columns):
        X[:, i] = column.to_numpy(zero_copy_only=False)
    return X, names


def numeric(batch: pa.RecordBatch) -> bool:
    """Whether all columns beside targets, weight and id are numbers without gaps, which `plain_rows` takes."""
    columns = [(batch.column(i), field) for i, field in enumerate(batch.schema) if field.name not in BESIDE]
    return all(is_numeric(field.type) and not column.null_count for column, field in columns)


def feature_columns(block: Block) -> dict[str, pa.Array]:
    """A block's rows as the columns that the functions above read; sparse and unnamed dense ones share its memory.

    Raises SchemaMismatch where a feature has a name of RESERVED.
    """
    if block.sparse:
        offsets = pa.array(block.X.indptr.astype(np.int32, copy=False))
        lists = (("indices", block.X.indices.astype(np.int32, copy=False)), ("values", block.X.data))
        return {name: pa.ListArray.from_arrays(offsets, pa.array(flat)) for name, flat in lists}
    if block.table:
        columns = arrow_from_raw(block.X)
        _refuse_reserved(columns)
        return columns
    if block.names is None:
        flat = pa.array(np.ascontiguousarray(block.X).ravel())
        return {"features": pa.FixedSizeListArray.from_arrays(flat, block.features)}
    _refuse_reserved(block.names)
    return {name: pa.array(np.ascontiguousarray(block.X[:, i])) for i, name in enumerate(block.names)}


def _refuse_reserved(names: Iterable[str]) -> None:
    taken = next((name for name in names if name in RESERVED), None)
    if taken is not None:
        raise SchemaMismatch(f"a feature is called {taken}, a name the layout uses itself; rename it.", column=taken)


def refuse_null(column: pa.Array, name: str) -> None:
    """Raise InvalidRows naming the first row in which the column is null."""
    if column.null_count:
        row = first_null(column)
        raise InvalidRows(
            f"column {name} is null in row {row}; send a value or leave the row out.", row=row, column=name
        )


def _flat_list(column: pa.Array, name: str) -> tuple[pa.Array, np.ndarray]:
    """A list column's values and its offsets from 0."""
    if not is_list(column.type):
        raise SchemaMismatch(f"column {name} is {column.type}; it must be a list a row.", column=name)
    refuse_null(column, name)
    offsets = offsets_of(column)
    first, last = int(offsets[0]), int(offsets[-1])
    flat = column.values
    if first or last < len(flat):
        flat = flat.slice(first, last - first)
    indptr = offsets if first == 0 else offsets - first
    if flat.null_count:
        row = int(np.searchsorted(indptr, first_null(flat), side="right")) - 1
        raise InvalidRows(f"row {row} has a null in column {name}; leave the entry out.", row=row)
    return flat, indptr


def _check_plain(name: str, column: pa.Array) -> None:
    if name.startswith("__index_level_"):
        raise SchemaMismatch(f"column {name} is a pandas index; convert with preserve_index=False.", column=name)
    if not is_numeric(column.type):
        raise SchemaMismatch(f"column {name} is {column.type}; features are numbers.", column=name)
    refuse_null(column, name)


def _numbers(flat: pa.Array, name: str) -> np.ndarray:
    """Values without nulls as float32 or float64; integers and half floats are cast."""
    if pa.types.is_float32(flat.type) or pa.types.is_float64(flat.type):
        return numbers_of(flat)
    if pa.types.is_integer(flat.type) or pa.types.is_float16(flat.type):
        with np.errstate(invalid="ignore"):  # as above
            return flat.to_numpy(zero_copy_only=False).astype(np.float64)
    raise SchemaMismatch(f"column {name} holds {flat.type}; it must hold float or double.", column=name)


def _refuse_lengths(indptr: np.ndarray, value_indptr: np.ndarray) -> None:
    """Raise InvalidRows naming the first row whose values are not as many as its indices."""
    other = np.flatnonzero(indptr != value_indptr)
    if len(other):
        row = int(other[0]) - 1
        raise InvalidRows(f"row {row} has different numbers of indices and values; send one value an index.", row=row)


def _refuse_outside(columns: np.ndarray, indptr: np.ndarray, limit: int) -> None:
    """Raise InvalidIndex naming the first entry that is not within 0 … limit − 1, if there is one."""
    if columns.min(initial=0) >= 0 and columns.max(initial=0) < limit:
        return
    at = int(np.flatnonzero((columns < 0) | (columns >= limit))[0])
    row = int(np.searchsorted(indptr, at, side="right")) - 1
    raise InvalidIndex(
        f"row {row} has index {columns[at]}; indices run from 0 to {limit - 1}.", row=row, column=int(columns[at])
    )


def sound_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> "sp.csr_matrix":
    """CSR of that shape over arrays known to be sorted, distinct and within it; none is copied. O(1)."""
    matrix = _csr(data, indices, indptr.astype(np.int32, copy=False), shape)
    matrix.has_canonical_format = True
    return matrix


def canonical_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, width: int) -> "sp.csr_matrix":
    """CSR (rows, width) over the given arrays, not copied when sorted; sorts within rows, refuses repeated indices.

    data (entries,) float32 or float64; indices (entries,) int32 within 0 … width − 1; indptr (rows + 1,).
    Raises InvalidIndex naming row and column.
    """
    shape = (len(indptr) - 1, width)
    matrix = _csr(data, indices, indptr.astype(np.int32, copy=False), shape)
    if matrix.has_canonical_format:
        return matrix
    matrix = _csr(data.copy(), indices.copy(), matrix.indptr, shape)
    matrix.sort_indices()
    if not _csr(matrix.data, matrix.indices, matrix.indptr, shape).has_canonical_format:
        rows = np.repeat(np.arange(shape[0]), np.diff(matrix.indptr))
        at = int(np.flatnonzero((matrix.indices[1:] == matrix.indices[:-1]) & (rows[1:] == rows[:-1]))[0])
        row, column = int(rows[at]), int(matrix.indices[at])
        raise InvalidIndex(f"row {row} has index {column} more than once; add its values up.", row=row, column=column)
    matrix.has_canonical_format = True
    return matrix


def _csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> "sp.csr_matrix":
    from scipy.sparse import csr_matrix  # not where rows are dense: a client loads none of it

    return csr_matrix((data, indices, indptr), shape=shape)
