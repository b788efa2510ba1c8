"""Check the fields of a State or projection before use.

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

ROW_COUNT_LIMIT = 2**53
"""Upper bound on counts of rows. A float64 represents every smaller count exactly."""

FEATURE_COUNT_LIMIT = 2**31
"""Upper bound on the number of features, because a sparse row's indices are int32."""

MAX_EXACT_WIDTH = 4096
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
    """Fields of a State that `check_common_state_fields` checks."""

    @property
    def target_kind(self) -> str | None:
        """Kind of targets. None if there were no targets so far."""
        ...


class CsrFields(Protocol):
    """Arrays of a CSR matrix or of dense rows.

    For dense rows, `values` has the rows, and `indices` and `indptr` are None.
    """

    @property
    def values(self) -> np.ndarray:
        """Stored values (entries,) of sparse rows, or dense rows (rows, columns)."""
        ...

    @property
    def indices(self) -> np.ndarray | None:
        """Column (entries,) of each stored value. None for dense rows."""
        ...

    @property
    def indptr(self) -> np.ndarray | None:
        """Index (rows + 1,) of each row's start in `values`.

        The last item is the number of all values. None for dense rows.
        """
        ...


def check_field_types(record: object) -> None:
    """Raise DamagedFile unless every field has its declared type.

    record: a NamedTuple, which declares the types of its fields. Floats must also be finite.
    """
    kind: type = type(record)
    for name, hint in _type_hints(kind).items():
        value = getattr(record, name)
        if not _has_type(value, hint):
            description = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r:.60}"
            raise field_error(record, name, description, f"of type {getattr(hint, '__name__', hint)}")


def check_dtype_and_shapes(record: object, dtype: type, **shape_by_field: tuple[int, ...]) -> None:
    """Raise DamagedFile unless arrays have a dtype and their shapes.

    record: object whose fields are the arrays.
    dtype: dtype that all arrays must have.
    shape_by_field: shape of each array, by the name of its field.
    """
    for name, shape in shape_by_field.items():
        array = getattr(record, name)
        if array.dtype != dtype or array.shape != shape:
            description = f"{array.dtype} of shape {array.shape}"
            raise field_error(record, name, description, f"{np.dtype(dtype)} of shape {shape}")


def shape_of_checked_matrix(record: object, field_name: str) -> tuple[int, int]:
    """Return the shape of a float64 matrix in a field.

    Raises DamagedFile if the field is no such matrix.

    record: object with the field.
    field_name: name of the field.
    """
    array = getattr(record, field_name)
    if array.ndim != 2 or array.dtype != np.float64:
        raise field_error(record, field_name, f"{array.dtype} of shape {array.shape}", "a float64 matrix")
    rows, columns = array.shape
    return int(rows), int(columns)


def check_finite_arrays(record: object, *field_names: str) -> None:
    """Raise DamagedFile if an array has NaN or infinity.

    field_names: names of the arrays' fields. A field may be None.
    """
    for name in field_names:
        array = getattr(record, name)
        if array is not None and not np.isfinite(array).all():
            raise field_error(record, name, "not finite everywhere", "finite")


def check_at_least(record: object, minimum: float, *field_names: str) -> None:
    """Raise DamagedFile unless fields are finite and at least `minimum`.

    field_names: names of the fields with the numbers and arrays.
    """
    for name in field_names:
        value = np.asarray(getattr(record, name))
        if not ((value >= minimum) & (value < np.inf)).all():
            raise field_error(record, name, f"{value.min()} at its least", f"finite and at least {minimum}")


def check_within(record: object, low: int, exclusive_high: int, *field_names: str) -> None:
    """Raise DamagedFile unless whole numbers are at least `low` and below `exclusive_high`.

    field_names: names of the fields with the numbers. A field is a number or an array.
    """
    for name in field_names:
        value = np.asarray(getattr(record, name))
        if value.size and not (low <= value.min() and value.max() < exclusive_high):
            actual = f"from {value.min()} to {value.max()}"
            raise field_error(record, name, actual, f"from {low} to {exclusive_high - 1}")


def check_strictly_ascending(record: object, field_name: str) -> None:
    """Raise DamagedFile unless each number is larger than the number before it."""
    if (np.diff(getattr(record, field_name)) <= 0).any():
        raise field_error(record, field_name, "not ascending", "ascending")


def check_one_of(record: object, field_name: str, choices: tuple[object, ...]) -> None:
    """Raise DamagedFile unless the field `field_name` is one of `choices`."""
    value = getattr(record, field_name)
    if value not in choices:
        raise field_error(record, field_name, f"{value!r:.60}", f"one of {', '.join(map(repr, choices))}")


def check_field_equals(record: object, field_name: str, expected: object) -> None:
    """Raise DamagedFile unless the field `field_name` is equal to `expected`."""
    value = getattr(record, field_name)
    if value != expected:
        raise field_error(record, field_name, f"{value!r:.60}", f"{expected!r:.60}")


def check_stored_rows(record: CsrFields, n_rows: int, n_columns: int) -> None:
    """Raise DamagedFile unless arrays are valid CSR or dense rows.

    All values must be finite. The indices of each CSR row must ascend and be below `n_columns`.

    record: arrays of the rows. For dense rows, `values` is (n_rows, n_columns), and `indices`
        and `indptr` are None.
    n_rows: number of rows.
    n_columns: number of columns.
    """
    values = record.values
    indices = record.indices
    indptr = record.indptr
    if (indices is None) != (indptr is None):
        raise field_error(record, "indptr", "there without indices, or they without it", "there with them")
    if indices is None or indptr is None:
        check_dtype_and_shapes(record, np.float64, values=(n_rows, n_columns))
        check_finite_arrays(record, "values")
        return

    entries = values.size
    check_dtype_and_shapes(record, np.float64, values=(entries,))
    check_dtype_and_shapes(record, np.int32, indices=(entries,))
    check_dtype_and_shapes(record, np.int64, indptr=(n_rows + 1,))
    if indptr[0] != 0 or indptr[-1] != entries or (np.diff(indptr) < 0).any():
        raise field_error(record, "indptr", "not ascending", f"ascending from 0 to {entries}")
    check_within(record, 0, n_columns, "indices")

    # Indices ascend only within a row, so the first index of each row is not compared.
    starts = np.zeros(entries + 1, dtype=bool)
    starts[indptr] = True
    if not (starts[1:-1] | (np.diff(indices) > 0)).all():
        raise field_error(record, "indices", "not ascending within a row", "ascending and distinct within each row")
    check_finite_arrays(record, "values")


def check_common_state_fields(state: LearnedState, target_kinds: tuple[str, ...]) -> None:
    """Raise DamagedFile unless the fields that all states have are valid.

    The fields are the number of rows, the number of features, the kind of targets and the labels.
    The labels must be distinct and of one type. There must be no labels if there are
    no targets or targets are numbers.

    target_kinds: kinds of targets that the state may have. A state without targets has the kind
        None.
    """
    check_within(state, 0, ROW_COUNT_LIMIT, "rows", "rows_skipped")
    check_within(state, 0, FEATURE_COUNT_LIMIT, "n_features")
    check_one_of(state, "target_kind", (None, *target_kinds))
    check_distinct_labels(state)
    if state.labels and state.target_kind in (None, "continuous"):
        raise field_error(state, "labels", f"{len(state.labels)} labels", f"none where targets are {state.target_kind}")


def check_distinct_labels(record: WithLabels) -> None:
    """Raise DamagedFile unless `labels` are distinct and of one type."""
    if len(set(map(type, record.labels))) > 1 or len(set(record.labels)) != len(record.labels):
        raise field_error(record, "labels", f"{record.labels!r:.60}", "distinct labels of one type")


def field_error(record: object, field_name: str, actual_text: str, expected_text: str) -> DamagedFile:
    """Return the error for a State's or a projection's field.

    actual_text: the field's value or shape, in words.
    expected_text: the value or shape that the field must have, in words.
    """
    field = f"{type(record).__name__}.{field_name}"
    return DamagedFile(f"{field} is {actual_text}; it must be {expected_text}. Use an older copy.")


@lru_cache(maxsize=64)
def _type_hints(named_tuple_class: type) -> dict[str, object]:
    """Return the types of a NamedTuple's fields, by field name."""
    return get_type_hints(named_tuple_class)


def _has_type(value: object, annotation: object) -> bool:
    """Return True if a value has an annotation's type.

    annotation: the annotation. A float must also be finite, and an int must fit into 64 bits.
    """
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if annotation is Any:
        return True
    if origin in (Union, UnionType):
        return any(_has_type(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_has_type(part, arguments[0]) for part in value)

    # bool is a subclass of int, but no numeric field has a bool.
    if annotation is float:
        return isinstance(value, int | float) and type(value) in (int, float) and abs(value) <= sys.float_info.max
    if annotation is int:
        return type(value) is int and -(2**63) <= value < 2**64
    return type(value) is annotation
