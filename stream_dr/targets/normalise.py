"""normalise: what a caller passes as y, in one of three forms.

A list of label collections, an array (rows, k), or an array (rows,). A row without a target is None in a list and in an
array of objects, and NaN in an array (rows,) of floats: None, pandas' NA and NaT, NaN among objects and masked entries
all become that.
"""

import numbers
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from stream_dr.errors import InvalidTargets, TargetKindMismatch

Form = list[Any] | np.ndarray
"""One collection of labels (or None) a row; or (rows, k) or (rows,) entries."""

_PLAIN = {str, int, bool, type(None)}
"""Types that need no closer look."""


def normalise(y: Any, one_label: bool, numeric: bool) -> Form:
    """y as a list of label collections, a (rows, k) array, or a (rows,) array.

    one_label: whether a single column (rows, 1) is one label a row whatever it holds; one of text always is. numeric:
    whether a list of lists is a table of numbers whatever its values; a rectangle of floats always is. Raises
    InvalidTargets (not one target a row) and TargetKindMismatch (lists of several lengths where numbers are needed).
    """
    sized = any(hasattr(y, name) for name in ("__len__", "shape", "__array__", "to_numpy"))
    if not sized or isinstance(y, str | bytes | Mapping | Set):
        raise InvalidTargets(f"y is of type {type(y).__name__}; pass a list or an array of one target a row.")
    y = _unwrapped(y)
    if isinstance(y, np.ndarray):
        return _from_array(y, one_label)

    try:
        items = list(y)
    except TypeError as e:
        raise InvalidTargets(f"y is {type(y).__name__}; pass one target a row.") from e
    types = set(map(type, items))
    if types <= _PLAIN:
        return _objects(items)
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
    """Whether an array of any shape is of strings, or of objects with a string among them."""
    return y.dtype.kind in "SU" or (y.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in y.ravel()))


def _unwrapped(y: Any) -> Any:
    """What a masked array, a pandas, polars or Arrow column or table, or a sparse matrix holds: an array, or a sequence."""
    if np.ma.isMaskedArray(y):
        y = y.tolist()
    if _has_own_gaps(y):
        y = y.astype(object)  # they would come as floats with NaN
    if hasattr(y, "to_pylist"):
        y = y.to_pylist()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if hasattr(y, "toarray"):
        return y.toarray()
    return np.asarray(y) if hasattr(y, "__array__") and not hasattr(y, "__iter__") else y


def _has_own_gaps(y: Any) -> bool:
    """Whether y is of pandas, with gaps in one of its own types (by its methods: pandas is optional)."""
    types = [y.dtype] if hasattr(y, "dtype") else list(getattr(y, "dtypes", ()))
    own = hasattr(y, "isna") and any(not isinstance(kind, np.dtype) for kind in types)
    return own and bool(np.asarray(y.isna()).any())


def _from_array(y: np.ndarray, one_label: bool) -> Form:
    """An array, with a single column as (rows,) where it is one label a row."""
    if y.ndim == 2 and y.shape[1] == 1 and (one_label or is_text(y)):
        y = y[:, 0]
    if y.ndim not in (1, 2):
        raise InvalidTargets(f"y has {y.ndim} dimensions; pass (rows,) or (rows, k).")
    return _from_objects(y.tolist()) if y.ndim == 1 and y.dtype == object else y


def _from_scalars(items: list[Any], types: set[type]) -> Form:
    """Labels or numbers, not all of plain types, as an array (rows,) that holds each as it is."""
    if types <= {np.bool_, bool}:
        return np.asarray(items, dtype=bool)
    if all(issubclass(kind, numbers.Real) and kind is not bool for kind in types):
        array = np.asarray(items)
        whole = all(issubclass(kind, numbers.Integral) for kind in types)
        if array.dtype.kind in ("iu" if whole else "iuf"):  # integers that no type holds would become floats
            return array
    return _from_objects(items)


def _from_objects(items: list[Any]) -> Form:
    """A column of objects: collections as a list, floats as floats."""
    if set(map(type, items)) <= _PLAIN:
        return _objects(items)
    items = [None if _is_missing(v) else v for v in items]
    types = set(map(type, items)) - {type(None)}
    if _are_collections(types):
        return items
    if types and all(issubclass(kind, float | np.floating) for kind in types):
        return np.array([np.nan if v is None else v for v in items], dtype=np.float64)
    return _objects(items)


def _objects(items: list[Any]) -> np.ndarray:
    return np.fromiter(items, dtype=object, count=len(items))


def _is_missing(value: Any) -> bool:
    """Whether an entry says that there is none: None, NaN among objects, pandas' NA or NaT (by name: pandas is optional)."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _are_collections(types: set[type]) -> bool:
    """Whether entries of some of the types are collections."""
    return any(issubclass(kind, list | tuple | set | frozenset | np.ndarray) for kind in types)


def _is_numeric_table(rows: list[Any]) -> bool:
    """Whether rows are of one length above 0 and hold floats only."""
    lengths = {len(row) if hasattr(row, "__len__") else -1 for row in rows}
    return (
        len(lengths) == 1 and max(lengths) > 0 and all(isinstance(v, float | np.floating) for row in rows for v in row)
    )
