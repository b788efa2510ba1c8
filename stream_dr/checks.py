"""checks: what the fields of a State or a projection must be before anything computes with them.

A file's checksum says that its bytes are those that were written, not who wrote them. So every NamedTuple that is read from
a file has a method `check`, made of these functions, and `unpack` calls it: no compiled loop and no neighbour search, which
would read and write past an array's end, sees an array that was not checked.

Cost: one pass over each array, a part of what its checksum took.
"""

import sys
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import DamagedFile

MOST_ROWS = 2**53
"""Counts of rows are below this: a float64 tells them apart."""

WIDEST = 2**31
"""Features are fewer: a sparse row's indices are int32."""

EXACT_WIDTH = 4096
"""Widest rows whose whole scatter is stored."""


def typed(fields: Any) -> None:
    """Raise DamagedFile unless every field is what the NamedTuple's annotations say. Floats are finite."""
    kind: Any = type(fields)
    for name, hint in _hints(kind).items():
        value = getattr(fields, name)
        if not _is(value, hint):
            description = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r:.60}"
            raise wrong(fields, name, description, f"of type {getattr(hint, '__name__', hint)}")


def shaped(fields: Any, dtype: type, **shapes: tuple[int, ...]) -> None:
    """Raise DamagedFile unless the arrays of these names have this dtype and their shapes."""
    for name, shape in shapes.items():
        array = getattr(fields, name)
        if array.dtype != dtype or array.shape != shape:
            description = f"{array.dtype} of shape {array.shape}"
            raise wrong(fields, name, description, f"{np.dtype(dtype)} of shape {shape}")


def matrix(fields: Any, name: str) -> tuple[int, int]:
    """The shape of a field that must be a float64 matrix. Raises DamagedFile."""
    array = getattr(fields, name)
    if array.ndim != 2 or array.dtype != np.float64:
        raise wrong(fields, name, f"{array.dtype} of shape {array.shape}", "a float64 matrix")
    rows, columns = array.shape
    return int(rows), int(columns)


def finite(fields: Any, *names: str) -> None:
    """Raise DamagedFile unless the arrays of these names, None left out, hold neither NaN nor infinity."""
    for name in names:
        array = getattr(fields, name)
        if array is not None and not np.isfinite(array).all():
            raise wrong(fields, name, "not finite everywhere", "finite")


def at_least(fields: Any, low: float, *names: str) -> None:
    """Raise DamagedFile unless the numbers and arrays of these names are finite and `low` or more."""
    for name in names:
        value = np.asarray(getattr(fields, name))
        if not ((value >= low) & (value < np.inf)).all():
            raise wrong(fields, name, f"{value.min()} at its least", f"finite and at least {low}")


def within(fields: Any, low: int, high: int, *names: str) -> None:
    """Raise DamagedFile unless the whole numbers of these names, arrays or not, are from `low` to below `high`."""
    for name in names:
        value = np.asarray(getattr(fields, name))
        if value.size and not (low <= value.min() and value.max() < high):
            raise wrong(fields, name, f"from {value.min()} to {value.max()}", f"from {low} to {high - 1}")


def one_of(fields: Any, name: str, choices: tuple[Any, ...]) -> None:
    """Raise DamagedFile unless the field is one of `choices`."""
    value = getattr(fields, name)
    if value not in choices:
        raise wrong(fields, name, f"{value!r:.60}", f"one of {', '.join(map(repr, choices))}")


def same(fields: Any, name: str, needed: Any) -> None:
    """Raise DamagedFile unless the field is equal to `needed`."""
    value = getattr(fields, name)
    if value != needed:
        raise wrong(fields, name, f"{value!r:.60}", f"{needed!r:.60}")


def csr(fields: Any, rows: int, width: int) -> None:
    """Raise DamagedFile unless the arrays are rows, CSR or dense.

    CSR rows are finite, and the indices of each row ascend and are below `width`. Dense rows are
    `values` (rows, width), with None for the others.
    """
    values, indices, indptr = fields.values, fields.indices, fields.indptr
    if (indices is None) != (indptr is None):
        raise wrong(fields, "indptr", "there without indices, or they without it", "there with them")
    if indices is None:
        shaped(fields, np.float64, values=(rows, width))
        finite(fields, "values")
        return
    entries = values.size
    shaped(fields, np.float64, values=(entries,))
    shaped(fields, np.int32, indices=(entries,))
    shaped(fields, np.int64, indptr=(rows + 1,))
    if indptr[0] != 0 or indptr[-1] != entries or (np.diff(indptr) < 0).any():
        raise wrong(fields, "indptr", "not ascending", f"ascending from 0 to {entries}")
    within(fields, 0, width, "indices")
    starts = np.zeros(entries + 1, dtype=bool)
    starts[indptr] = True  # an index may be less than the one before it where a row begins
    if not (starts[1:-1] | (np.diff(indices) > 0)).all():
        raise wrong(fields, "indices", "not ascending within a row", "ascending and distinct within each row")
    finite(fields, "values")


def learned(state: Any, kinds: tuple[str, ...]) -> None:
    """Raise DamagedFile unless the fields that every state has are in range.

    They are rows, width, kind of targets (one of `kinds`, or None), and labels, which are distinct
    and of one type.
    """
    within(state, 0, MOST_ROWS, "rows", "rows_skipped")
    within(state, 0, WIDEST, "n_features")
    one_of(state, "target_kind", (None, *kinds))
    labels(state)
    if state.labels and state.target_kind in (None, "continuous"):
        raise wrong(state, "labels", f"{len(state.labels)} labels", f"none where targets are {state.target_kind}")


def labels(fields: Any) -> None:
    """Raise DamagedFile unless the field `labels` holds distinct labels of one type."""
    if len(set(map(type, fields.labels))) > 1 or len(set(fields.labels)) != len(fields.labels):
        raise wrong(fields, "labels", f"{fields.labels!r:.60}", "distinct labels of one type")


def wrong(fields: Any, name: str, description: str, needed: str) -> DamagedFile:
    """Return the error of a field that has this description and needs another."""
    return DamagedFile(f"{type(fields).__name__}.{name} is {description}; it must be {needed}. Use an older copy.")


@lru_cache(maxsize=64)
def _hints(kind: Any) -> JsonDict:
    return get_type_hints(kind)


def _is(value: Any, hint: Any) -> bool:
    """Return True if a value has an annotation's type."""
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is(value, one) for one in of)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is(part, of[0]) for part in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    if hint is int:
        return type(value) is int and -(2**63) <= value < 2**64
    return type(value) is hint
