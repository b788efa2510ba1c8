"""Check the fields of a State or a projection before they are used.

Every NamedTuple that is read from a file has a method `check`, which calls these functions.
`unpack` calls `check`. A check costs one pass over an array, less than the array's checksum.

Why this way: a checksum shows that a file's bytes have not changed, but not which program wrote
the bytes. With a bad array, compiled loops and neighbour searches would read and write past the
array's end. So every array is checked first.
"""

import sys
from functools import lru_cache
from types import UnionType
from typing import Any, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np

from stream_dr.errors import DamagedFile

MOST_ROWS = 2**53
"""Upper bound on counts of rows. A float64 represents every smaller count exactly."""

WIDEST = 2**31
"""Upper bound on the number of features, because a sparse row's indices are int32."""

EXACT_WIDTH = 4096
"""Maximum number of features for which the whole scatter matrix is stored.

For more features, only the diagonal of the scatter matrix is stored.
"""


class WithLabels(Protocol):
    """Object with the labels of a stream."""

    @property
    def labels(self) -> tuple[object, ...]:
        """Labels, all of one type."""
        ...


class LearnedState(WithLabels, Protocol):
    """Fields of a State that `check_learned` checks."""

    @property
    def target_kind(self) -> str | None:
        """Kind of targets, or None if there were no targets so far."""
        ...


class CsrFields(Protocol):
    """Arrays of a CSR matrix, or an array of dense rows.

    For dense rows, `values` has the rows, and `indices` and `indptr` are None.
    """

    @property
    def values(self) -> np.ndarray:
        """Stored values (entries,) of sparse rows, or dense rows (rows, width)."""
        ...

    @property
    def indices(self) -> np.ndarray | None:
        """Column (entries,) of each stored value. None for dense rows."""
        ...

    @property
    def indptr(self) -> np.ndarray | None:
        """Index of each row's first value in `values`, (rows + 1,). None for dense rows.

        The last item is the number of all values.
        """
        ...


def check_field_types(fields: object) -> None:
    """Raise DamagedFile unless every field has its declared type.

    fields: a NamedTuple, which declares the types of its fields. Floats must also be finite.
    """
    kind: type = type(fields)
    for name, hint in _type_hints(kind).items():
        value = getattr(fields, name)
        if not _has_type(value, hint):
            description = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r:.60}"
            raise field_error(fields, name, description, f"of type {getattr(hint, '__name__', hint)}")


def check_array_shapes(fields: object, dtype: type, **shapes: tuple[int, ...]) -> None:
    """Raise DamagedFile unless each array has the dtype and its shape.

    fields: object whose fields are the arrays.
    dtype: dtype that all arrays must have.
    shapes: shape of each array, by the name of its field.
    """
    for name, shape in shapes.items():
        array = getattr(fields, name)
        if array.dtype != dtype or array.shape != shape:
            description = f"{array.dtype} of shape {array.shape}"
            raise field_error(fields, name, description, f"{np.dtype(dtype)} of shape {shape}")


def require_matrix(fields: object, name: str) -> tuple[int, int]:
    """Return the shape of a field that must be a float64 matrix.

    Raises DamagedFile if the field is no such matrix.

    fields: object with the field.
    name: name of the field.
    """
    array = getattr(fields, name)
    if array.ndim != 2 or array.dtype != np.float64:
        raise field_error(fields, name, f"{array.dtype} of shape {array.shape}", "a float64 matrix")
    rows, columns = array.shape
    return int(rows), int(columns)


def check_finite_arrays(fields: object, *names: str) -> None:
    """Raise DamagedFile if an array has NaN or infinity.

    names: names of the arrays' fields. A field may be None.
    """
    for name in names:
        array = getattr(fields, name)
        if array is not None and not np.isfinite(array).all():
            raise field_error(fields, name, "not finite everywhere", "finite")


def check_at_least(fields: object, low: float, *names: str) -> None:
    """Raise DamagedFile unless numbers and arrays are finite and at least `low`.

    names: names of the fields with the numbers and arrays.
    """
    for name in names:
        value = np.asarray(getattr(fields, name))
        if not ((value >= low) & (value < np.inf)).all():
            raise field_error(fields, name, f"{value.min()} at its least", f"finite and at least {low}")


def check_within(fields: object, low: int, high: int, *names: str) -> None:
    """Raise DamagedFile unless whole numbers are at least `low` and below `high`.

    names: names of the fields with the numbers. A field is a number or an array.
    """
    for name in names:
        value = np.asarray(getattr(fields, name))
        if value.size and not (low <= value.min() and value.max() < high):
            raise field_error(fields, name, f"from {value.min()} to {value.max()}", f"from {low} to {high - 1}")


def check_one_of(fields: object, name: str, choices: tuple[object, ...]) -> None:
    """Raise DamagedFile unless the field `name` is one of `choices`."""
    value = getattr(fields, name)
    if value not in choices:
        raise field_error(fields, name, f"{value!r:.60}", f"one of {', '.join(map(repr, choices))}")


def check_equal(fields: object, name: str, needed: object) -> None:
    """Raise DamagedFile unless the field `name` is equal to `needed`."""
    value = getattr(fields, name)
    if value != needed:
        raise field_error(fields, name, f"{value!r:.60}", f"{needed!r:.60}")


def check_csr_arrays(fields: CsrFields, rows: int, width: int) -> None:
    """Raise DamagedFile unless the arrays are valid CSR or dense rows.

    All values must be finite. The indices of each CSR row must ascend and be below `width`.

    fields: arrays of the rows. For dense rows, `values` is (rows, width), and `indices` and
        `indptr` are None.
    rows: number of rows.
    width: number of columns.
    """
    values = fields.values
    indices = fields.indices
    indptr = fields.indptr
    if (indices is None) != (indptr is None):
        raise field_error(fields, "indptr", "there without indices, or they without it", "there with them")
    if indices is None or indptr is None:
        check_array_shapes(fields, np.float64, values=(rows, width))
        check_finite_arrays(fields, "values")
        return

    entries = values.size
    check_array_shapes(fields, np.float64, values=(entries,))
    check_array_shapes(fields, np.int32, indices=(entries,))
    check_array_shapes(fields, np.int64, indptr=(rows + 1,))
    if indptr[0] != 0 or indptr[-1] != entries or (np.diff(indptr) < 0).any():
        raise field_error(fields, "indptr", "not ascending", f"ascending from 0 to {entries}")
    check_within(fields, 0, width, "indices")

    # Indices ascend only within a row, so the first index of each row is not compared.
    starts = np.zeros(entries + 1, dtype=bool)
    starts[indptr] = True
    if not (starts[1:-1] | (np.diff(indices) > 0)).all():
        raise field_error(fields, "indices", "not ascending within a row", "ascending and distinct within each row")
    check_finite_arrays(fields, "values")


def check_learned(state: LearnedState, kinds: tuple[str, ...]) -> None:
    """Raise DamagedFile unless the fields that every state has are valid.

    The fields are the number of rows, the number of features, the kind of targets and the labels.
    The labels must be distinct and of one type. There must be no labels if there are
    no targets or targets are numbers.

    kinds: kinds of targets that the state may have. A state without targets has the kind None.
    """
    check_within(state, 0, MOST_ROWS, "rows", "rows_skipped")
    check_within(state, 0, WIDEST, "n_features")
    check_one_of(state, "target_kind", (None, *kinds))
    check_distinct_labels(state)
    if state.labels and state.target_kind in (None, "continuous"):
        raise field_error(state, "labels", f"{len(state.labels)} labels", f"none where targets are {state.target_kind}")


def check_distinct_labels(fields: WithLabels) -> None:
    """Raise DamagedFile unless the field `labels` holds distinct labels of one type."""
    if len(set(map(type, fields.labels))) > 1 or len(set(fields.labels)) != len(fields.labels):
        raise field_error(fields, "labels", f"{fields.labels!r:.60}", "distinct labels of one type")


def field_error(fields: object, name: str, description: str, needed: str) -> DamagedFile:
    """Return the error for a field of a State or a projection.

    description: the field's value or shape, in words.
    needed: the value or shape that the field must have, in words.
    """
    return DamagedFile(f"{type(fields).__name__}.{name} is {description}; it must be {needed}. Use an older copy.")


@lru_cache(maxsize=64)
def _type_hints(kind: type) -> dict[str, object]:
    """Return the declared types of a NamedTuple's fields, by the field's name."""
    return get_type_hints(kind)


def _has_type(value: object, hint: object) -> bool:
    """Return True if a value has the type of a field's annotation.

    hint: the annotation. A float must also be finite, and an int must fit into 64 bits.
    """
    origin = get_origin(hint)
    arguments = get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_has_type(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_has_type(part, arguments[0]) for part in value)

    # bool is a subclass of int, but no numeric field has a bool.
    if hint is float:
        return isinstance(value, int | float) and type(value) in (int, float) and abs(value) <= sys.float_info.max
    if hint is int:
        return type(value) is int and -(2**63) <= value < 2**64
    return type(value) is hint
