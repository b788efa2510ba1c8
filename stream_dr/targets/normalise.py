"""Normalisation of what a caller passes as y to one of three forms.

The forms are a list of label collections, an array (rows, k), and an array (rows,). A row without a
target is None in a list and in an array of objects, and NaN in an array (rows,) of floats. None, NA
and NaT of pandas, NaN among objects and masked entries all become one of these.
"""

import numbers
from collections.abc import Iterable, Mapping, Set, Sized
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

Form = list[Any] | np.ndarray
"""List with one collection of labels or None per row, or an array (rows, k) or (rows,)."""

_PLAIN = {str, int, bool, type(None)}
"""Types of entries that are used unchanged."""


def normalise_targets(y: Any, one_label: bool, numeric: bool) -> Form:
    """Return y as a list of label collections, a (rows, k) array or a (rows,) array.

    one_label: True if a single column (rows, 1) is one label per row. A column of text always is.
    numeric: True if a list of lists is a table of numbers. A rectangle of floats always is.

    Raises InvalidTargets if y is not one target per row. Raises TargetKindMismatch for lists that
    differ in length if numbers are needed.
    """
    if not isinstance(y, Sized | Shaped | NumpyArrayLike | NumpyConvertible) or isinstance(
        y, str | bytes | Mapping | Set
    ):
        raise InvalidTargets(f"y is of type {type(y).__name__}; pass a list or an array of one target a row.")
    y = _unwrap_container(y)
    if isinstance(y, np.ndarray):
        return _from_array(y, one_label)

    try:
        items = list(y)
    except TypeError as e:
        raise InvalidTargets(f"y is {type(y).__name__}; pass one target a row.") from e
    types = set(map(type, items))
    if types <= _PLAIN:
        return _object_array(items)
    if not _are_collections(types):
        return _from_scalars(items, types)
    if not numeric and not _is_numeric_table(items):
        return [None if _is_missing(v) else v for v in items]

    try:
        table = np.asarray(y)
    except ValueError as e:
        raise TargetKindMismatch(
            "lists of several lengths were given; this model was started with numbers. Pass a row of numbers a row."
        ) from e
    return _from_array(table, one_label)


def is_text(y: np.ndarray) -> bool:
    """Return True for an array of strings, or of objects with a string among them."""
    return y.dtype.kind in "SU" or (y.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in y.ravel()))


def _unwrap_container(y: Any) -> Any:
    """Return the array or sequence in a masked array, column, table or sparse matrix.

    Columns and tables may be those of pandas, polars or Arrow.
    """
    if np.ma.isMaskedArray(y):
        y = y.tolist()
    # As floats, missing values would become NaN and integers would lose digits.
    if _has_missing_of_pandas(y):
        y = y.astype(object)

    if isinstance(y, ListConvertible):
        y = y.to_pylist()
    elif isinstance(y, NumpyConvertible):
        y = y.to_numpy()
    if isinstance(y, DenseConvertible):
        return y.toarray()
    return np.asarray(y) if isinstance(y, NumpyArrayLike) and not isinstance(y, Iterable) else y


def _has_missing_of_pandas(y: object) -> bool:
    """Return True if y is of pandas and has missing values in a type of pandas' own."""
    # Recognised by its methods, since pandas is optional.
    if not isinstance(y, MissingAware):
        return False
    types = [y.dtype] if isinstance(y, Typed) else list(y.dtypes) if isinstance(y, TypedColumns) else []
    own_type = any(not isinstance(kind, np.dtype) for kind in types)
    return own_type and bool(np.asarray(y.isna()).any())


def _from_array(y: np.ndarray, one_label: bool) -> Form:
    """Return an array, with a single column as (rows,) if it is one label per row."""
    if y.ndim == 2 and y.shape[1] == 1 and (one_label or is_text(y)):
        y = y[:, 0]
    if y.ndim not in (1, 2):
        raise InvalidTargets(f"y has {y.ndim} dimensions; pass (rows,) or (rows, k).")
    return _from_objects(y.tolist()) if y.ndim == 1 and y.dtype == object else y


def _from_scalars(items: list[Any], types: set[type]) -> Form:
    """Return labels or numbers as an array (rows,) that represents each exactly."""
    if types <= {np.bool_, bool}:
        return np.asarray(items, dtype=bool)
    if all(issubclass(kind, numbers.Real) and kind is not bool for kind in types):
        array = np.asarray(items)
        whole = all(issubclass(kind, numbers.Integral) for kind in types)
        # Integers beyond every integer type would become floats.
        if array.dtype.kind in ("iu" if whole else "iuf"):
            return array
    return _from_objects(items)


def _from_objects(items: list[Any]) -> Form:
    """Return a column of objects as a list of collections, floats or objects."""
    if set(map(type, items)) <= _PLAIN:
        return _object_array(items)
    items = [None if _is_missing(v) else v for v in items]
    types = set(map(type, items)) - {type(None)}
    if _are_collections(types):
        return items
    if types and all(issubclass(kind, float | np.floating) for kind in types):
        return np.array([np.nan if v is None else v for v in items], dtype=np.float64)
    return _object_array(items)


def _object_array(items: list[Any]) -> np.ndarray:
    """Return items as an array of objects."""
    return np.fromiter(items, dtype=object, count=len(items))


def _is_missing(value: object) -> bool:
    """Return True for None, NaN, and NA and NaT of pandas."""
    # Recognised by name, since pandas is optional.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _are_collections(types: set[type]) -> bool:
    """Return True if some of the types are collections."""
    return any(issubclass(kind, list | tuple | set | frozenset | np.ndarray) for kind in types)


def _is_numeric_table(rows: list[Any]) -> bool:
    """Return True if all rows have one length above 0 and hold floats only."""
    lengths = {len(row) if isinstance(row, Sized) else -1 for row in rows}
    return (
        len(lengths) == 1 and max(lengths) > 0 and all(isinstance(v, float | np.floating) for row in rows for v in row)
    )
