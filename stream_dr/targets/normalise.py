"""Conversion of a caller's targets y to three forms.

- A list with one collection of labels per row. A row without a target is None.
- An array (rows, k) of numbers.
- An array (rows,) of labels or numbers. A row without a target is None in an array of objects, and
  NaN in an array of floats.

Missing targets (None, NA and NaT of pandas, NaN among objects, and masked entries) become None or
NaN.
"""

import numbers
from collections.abc import Iterable, Mapping, Set, Sized
from decimal import Decimal
from typing import Any

import numpy as np

from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.rows.interfaces import (
    DenseConvertible,
    ListConvertible,
    MissingAware,
    NumpyArrayLike,
    NumpyConvertible,
    Shaped,
    Typed,
    TypedColumns,
)

CollectionsOrArray = list[Any] | np.ndarray
"""Targets as a list or an array.

A list has a collection of labels, or None, for each row. An array is (rows, k) or (rows,).
"""

_PLAIN = {str, int, bool, type(None)}
"""Types of labels that are not converted."""


def normalise_targets(y: Any, keep_columns: bool, lists_are_numbers: bool) -> CollectionsOrArray:
    """Convert targets to a list of collections or an array.

    A list has a collection of labels for each row. An array is (rows, k) for numbers, and (rows,)
    for one label or number per row. Raises InvalidTargets if y is not one target per row. Raises
    TargetKindMismatch if numbers are needed but lists differ in length.

    keep_columns: True to read an array (rows, 1) of numbers as an indicator of one label. False to
        read it as one label or number per row. A column of text always has one label per row.
    lists_are_numbers: True to read lists of lists as a table of numbers. Lists of equal length
        that have only floats are always read as a table.
    """
    # Check a numpy array first. Other containers are converted below.
    if type(y) is np.ndarray:
        return _from_array(y, keep_columns)
    has_rows = isinstance(y, Sized | Shaped | NumpyArrayLike | NumpyConvertible)
    if not has_rows or isinstance(y, str | bytes | Mapping | Set):
        raise InvalidTargets(f"y is of type {type(y).__name__}; pass a list or an array of one target a row.")
    y = _unwrap_container(y)
    if isinstance(y, np.ndarray):
        return _from_array(np.asarray(y), keep_columns)

    # Here y is a sequence of labels, of numbers or of collections of labels.
    try:
        items = list(y)
    except TypeError as e:
        raise InvalidTargets(f"y is {type(y).__name__}; pass one target a row.") from e
    types = set(map(type, items))
    if types <= _PLAIN:
        return _object_array(items)
    if not _any_type_is_collection(types):
        return _array_from_scalars(items, types)
    if not lists_are_numbers and not _is_float_table(items):
        return [None if _is_missing(v) else v for v in items]

    # Convert sequences of numbers to an array (rows, columns).
    try:
        table = np.asarray(y)
    except ValueError as e:
        raise TargetKindMismatch(
            "lists of several lengths were given; this model was started with numbers. Pass a row of numbers a row."
        ) from e
    return _from_array(table, keep_columns)


def has_strings(y: np.ndarray) -> bool:
    """Return True if the array has at least one string.

    Bytes count as strings.
    """
    return y.dtype.kind in "SU" or (y.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in y.ravel()))


def _unwrap_container(y: Any) -> Any:
    """Return a container's values as an array or a sequence.

    Containers are masked arrays, sparse matrices, and columns and tables of pandas, polars or
    Arrow. Other objects are returned unchanged.
    """
    if np.ma.isMaskedArray(y):
        y = np.where(y.mask, np.array(None), y.data) if y.mask.any() else y.data
    # Convert missing values of pandas to objects first.
    # In an array of floats with NaN, large integers would lose digits.
    if _has_missing_of_pandas(y):
        y = y.astype(object)

    # A table of Arrow has a shape. A column of Arrow has none, and its list keeps large integers.
    if isinstance(y, ListConvertible):
        y = np.asarray(y) if isinstance(y, Shaped) else y.to_pylist()
    elif isinstance(y, NumpyConvertible):
        y = y.to_numpy()
    if isinstance(y, DenseConvertible):
        return y.toarray()
    if isinstance(y, NumpyArrayLike) and not isinstance(y, Iterable):
        return np.asarray(y)
    return y


def _has_missing_of_pandas(y: object) -> bool:
    """True if y has missing values of a pandas type."""
    # Containers of pandas are recognised by their methods, since pandas is optional.
    if not isinstance(y, MissingAware):
        return False
    types = [y.dtype] if isinstance(y, Typed) else list(y.dtypes) if isinstance(y, TypedColumns) else []
    own_type = any(not isinstance(kind, np.dtype) for kind in types)
    return own_type and bool(np.asarray(y.isna()).any())


def _from_array(y: np.ndarray, keep_columns: bool) -> CollectionsOrArray:
    """Normalise targets that the caller passed as an array.

    Label collections are returned as a list, and other targets as an array. A single column (rows,
    1) is returned as an array (rows,).

    y: array of labels, numbers or objects.
    keep_columns: True to return a single column of numbers as it is.
    """
    if y.ndim == 2 and y.shape[1] == 1 and (not keep_columns or has_strings(y)):
        y = y[:, 0]
    if y.ndim == 2 and y.dtype == object and any(isinstance(v, Decimal) for v in y.flat):
        y = y.astype(np.float64)
    if y.ndim not in (1, 2):
        raise InvalidTargets(f"y has {y.ndim} dimensions; pass (rows,) or (rows, k).")
    if y.ndim == 1 and y.dtype == object:
        return _from_objects(y.tolist())
    return y


def _array_from_scalars(items: list[Any], types: set[type]) -> CollectionsOrArray:
    """Return labels or numbers as an array (rows,).

    No label or number is changed. If no other numpy type represents all items exactly, the array
    has the type object.

    items: label or number of each row.
    types: types of the items.
    """
    if types <= {np.bool_, bool}:
        return np.asarray(items, dtype=bool)
    if all(issubclass(kind, numbers.Real) and kind is not bool for kind in types):
        array = np.asarray(items)
        whole = all(issubclass(kind, numbers.Integral) for kind in types)
        # numpy would turn integers too large for its integer types into floats.
        if array.dtype.kind in ("iu" if whole else "iuf"):
            return array
    return _from_objects(items)


def _from_objects(row_targets: list[Any]) -> CollectionsOrArray:
    """Return the targets of rows in one of three forms.

    - If some rows have a collection of labels, the result is a list with one item for each row.
    - If all targets are floats or decimals, the result is a float array (rows,) in which missing
      targets are NaN.
    - For other targets, the result is an array (rows,) of objects in which missing targets are
      None.

    row_targets: target of each row.
    """
    if set(map(type, row_targets)) <= _PLAIN:
        return _object_array(row_targets)
    row_targets = [None if _is_missing(v) else v for v in row_targets]
    types = set(map(type, row_targets)) - {type(None)}
    if _any_type_is_collection(types):
        return row_targets
    if types and all(issubclass(kind, float | np.floating | Decimal) for kind in types):
        return np.array([np.nan if v is None else v for v in row_targets], dtype=np.float64)
    return _object_array(row_targets)


def _object_array(items: list[Any]) -> np.ndarray:
    """Return items as an array (rows,) of objects."""
    return np.fromiter(items, dtype=object, count=len(items))


def _is_missing(value: object) -> bool:
    """Return True for None, NaN, and pandas' NA and NaT."""
    # NA and NaT are recognised by their class names, since pandas is optional.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _any_type_is_collection(types: set[type]) -> bool:
    """Return True if any of the types is a collection."""
    return any(issubclass(kind, list | tuple | set | frozenset | np.ndarray) for kind in types)


def _is_float_table(rows: list[Any]) -> bool:
    """True if all targets are vectors of floats of equal length.

    Decimals count as floats. Returns False if a target is no vector, if lengths differ, or if the
    vectors are empty.

    rows: target of each row.
    """
    lengths = {len(row) if isinstance(row, Sized) else -1 for row in rows}
    if len(lengths) != 1 or max(lengths) < 1:
        return False
    return all(isinstance(v, float | np.floating | Decimal) for row in rows for v in row)
