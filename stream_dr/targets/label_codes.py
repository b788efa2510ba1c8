"""Encoding of labels as integer codes.

The result is a list of distinct labels, and a code for each row. The code of a row is the index of
the row's label in the list. Encoding a list of labels costs O(rows) dictionary look-ups in C.

Parsing the labels of a batch must cost less than learning the batch. So lists of labels of one
type, and arrays of integers, are encoded without a Python loop over the rows. A slower function
encodes other labels.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stream_dr.errors import InvalidTargets

Label = str | int | bool

INTEGERS = (-(2**63), 2**64 - 1)
"""Smallest and largest integer that can be a label.

Arrow columns and JSON readers cannot represent other integers.
"""

MIN_LABELS_FOR_TABLE, MAX_TABLE_RANGE = 100, 1 << 12
"""Limits for encoding integer labels by a table of all integers in their range.

MIN_LABELS_FOR_TABLE: smallest number of rows for which a table is used.
MAX_TABLE_RANGE: largest difference between the largest and the smallest label.
"""

EXACT = 2**53
"""Smallest whole float64 to which more than one integer is rounded."""


class EncodedLabels(NamedTuple):
    """Codes of rows with one label each.

    Attributes
    ----------
    labels : tuple of Label
        Distinct labels, in order of appearance.
    codes : (rows,) int32
        Label of each row as an index into `labels`. −1 for a row without a label.
    present : (rows,) bool or None
        True for rows with a label. None if every row has a label.
    """

    labels: tuple[Label, ...]
    codes: np.ndarray
    present: np.ndarray | None


def encode_single_labels(labels: Any) -> EncodedLabels:
    """Encode one label per row.

    Raises InvalidTargets for labels of mixed or unsupported types, and for numbers out of range.

    labels: sequence or 1-D array of one label per row.
    """
    are_integers = isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu"
    if are_integers and len(labels) >= MIN_LABELS_FOR_TABLE:
        low = int(labels.min())
        high = int(labels.max())
        if high - low <= MAX_TABLE_RANGE:
            return EncodedLabels(*_encode_integers_by_table(labels, low, high), None)

    items = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    types = set(map(type, items))
    if len(types) == 1 and types <= {str, int, bool}:
        return EncodedLabels(*_encode_same_type_by_appearance(items), None)
    return _check_and_encode_labels(items)


def encode_label_sets_fast(label_sets: Sequence[Any]) -> tuple[tuple[Label, ...], np.ndarray, np.ndarray] | None:
    """Encode one label collection per row, if this is fast.

    Returns None unless every row is a list or tuple, and all labels are of one type (str, int or
    bool). Other collections need a slower function.

    label_sets: collection of labels of each row.
    """
    if not set(map(type, label_sets)) <= {list, tuple}:
        return None
    flat = list(chain.from_iterable(label_sets))
    types = set(map(type, flat))
    if len(types) > 1 or not types <= {str, int, bool}:
        return None
    table, codes = _encode_same_type_by_appearance(flat)
    return table, *sort_distinct_codes_in_rows(codes, np.cumsum([0, *map(len, label_sets)]))


def sort_distinct_codes_in_rows(codes: np.ndarray, indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort the codes of each row and remove repeated codes.

    Returns the new codes int32 and the new indptr int64.

    codes: (entries,), each ≥ 0.
    indptr: (rows + 1,). Row i has the codes codes[indptr[i]:indptr[i + 1]].
    """
    rows = len(indptr) - 1
    wide = int(codes.max(initial=0)) + 1
    # Each key holds the number of a row and one of its codes. Sorting the keys sorts within rows.
    keys = np.repeat(np.arange(rows) * wide, np.diff(indptr)) + codes
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    row, codes = np.divmod(keys, wide)
    return codes.astype(np.int32), np.searchsorted(row, np.arange(rows + 1))


def old_and_new_codes_by_appearance(codes: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Renumber codes in the order in which they first appear.

    Returns two arrays: the old codes in order of appearance, and the new code int32 of each row. A
    new code is an index into the first array. The code −1 does not change.

    codes: (rows,) old code of each row, below `n_labels`.
    n_labels: number of labels.
    """
    used, first = np.unique(codes, return_index=True)
    used = used[np.argsort(first)]
    used = used[used >= 0]
    number = np.full(n_labels + 1, -1, dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return used, number[codes]


def check_and_convert_labels(labels: Any) -> tuple[Label, ...]:
    """Return labels as Python's str, int or bool.

    Whole floats become int. Raises InvalidTargets if labels are of different types, if an integer
    is out of range, or if a string holds half a character.

    labels: Python or numpy values.
    """
    plain = tuple(item.item() if isinstance(item, np.generic) else item for item in labels)
    check_float_labels_exact([v for v in plain if isinstance(v, float) and v.is_integer()])
    plain = tuple(int(v) if isinstance(v, float) and v.is_integer() else v for v in plain)
    types = {type(v) for v in plain}
    if not types <= {str, int, bool} or len(types) > 1:
        names = ", ".join(sorted(t.__name__ for t in types))
        raise InvalidTargets(f"labels are of type {names}; labels must be all str, all int or all bool.")
    _check_labels_fit_arrow(plain)
    return plain


def label_array(labels: Sequence[Label]) -> np.ndarray:
    """Return labels of one type as a numpy array.

    No label is changed. If no other numpy type represents all labels exactly, the array has the
    type object.
    """
    # An array of strings would lose null characters at the end of a string.
    if any(type(label) is str and label.endswith("\0") for label in labels):
        return np.array(labels, dtype=object)
    array = np.asarray(labels)
    if not labels or array.dtype.kind != "f":
        return array
    return np.array(labels, dtype=object if any(label < 0 for label in labels if type(label) is int) else np.uint64)


def check_float_labels_exact(numbers: ArrayLike) -> None:
    """Raise InvalidTargets for floats too large to be exact labels.

    A whole float from 2^53 on (2^24 for float32) may stand for more than one integer.

    numbers: list or array of whole numbers.
    """
    array = np.asarray(numbers)
    short = array.dtype.kind == "f" and array.dtype.itemsize < 8
    kind, bits = (array.dtype.name, np.finfo(array.dtype).nmant + 1) if short else ("double", 53)
    inexact = array[np.abs(array.astype(np.float64)) >= 2.0**bits]
    if len(inexact):
        raise InvalidTargets(
            f"label {float(inexact[0])!r} is read as a {kind}, and from 2**{bits} on a {kind} may be another number than "
            "was meant. Pass labels as integers from -2**63 to 2**64 - 1, or as strings."
        )


def _check_labels_fit_arrow(distinct_labels: Sequence[Any]) -> None:
    """Raise InvalidTargets for a label that Arrow cannot represent.

    Arrow cannot represent integers out of range, and strings with half a character.

    distinct_labels: distinct labels of one type.
    """
    kind = type(distinct_labels[0]) if distinct_labels else None
    if kind is str:
        try:
            "".join(distinct_labels).encode()
        except UnicodeEncodeError:
            odd = next(label for label in distinct_labels if any("\ud800" <= letter <= "\udfff" for letter in label))
            raise InvalidTargets(f"label {odd!r} holds half a character (a lone surrogate); pass whole text.") from None
    if kind is int and (min(distinct_labels) < INTEGERS[0] or max(distinct_labels) > INTEGERS[1]):
        odd = next(v for v in distinct_labels if not INTEGERS[0] <= v <= INTEGERS[1])
        raise InvalidTargets(
            f"label {odd} is outside the integers from -2**63 to 2**64 - 1; pass such labels as strings."
        )


def _encode_same_type_by_appearance(flat_labels: list[Any]) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return the distinct labels and a code for each row.

    flat_labels: label of each row, all str, all int or all bool.
    """
    table = {label: code for code, label in enumerate(dict.fromkeys(flat_labels))}
    _check_labels_fit_arrow(tuple(table))
    return tuple(table), np.fromiter(map(table.__getitem__, flat_labels), dtype=np.int32, count=len(flat_labels))


def _encode_integers_by_table(labels: np.ndarray, smallest: int, largest: int) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return the distinct labels and a code for each row.

    The codes are found in a table with an entry for each integer from low to high.

    labels: (rows,) integers.
    smallest, largest: smallest and largest label.
    """
    # Labels of every integer type can be subtracted modulo 2**64.
    offsets = (labels.astype(np.uint64) - np.uint64(smallest % 2**64)).astype(np.intp)
    rows = len(labels)
    first = np.full(largest - smallest + 1, rows)
    # The first row of each label. Rows are written from last to first, so the first row remains.
    first[offsets[::-1]] = np.arange(rows - 1, -1, -1)
    used = np.flatnonzero(first < rows)
    used = used[np.argsort(first[used])]

    # Number the labels in the order of their first rows.
    number = np.empty(largest - smallest + 1, dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return tuple(smallest + offset for offset in used.tolist()), number[offsets]


def _check_and_encode_labels(label_of_each_row: list[Any]) -> EncodedLabels:
    """Encode one label per row, for labels of any type.

    label_of_each_row: label of each row.
    """
    table: dict[Label, int] = {}
    codes = np.empty(len(label_of_each_row), dtype=np.int32)
    for i, item in enumerate(label_of_each_row):
        try:
            codes[i] = -1 if item is None else table.setdefault(item, len(table))
        except TypeError as e:
            raise InvalidTargets(
                f"the label of row {i} is of type {type(item).__name__}; labels must be all str, all int or all bool."
            ) from e
    if len({type(item) for item in label_of_each_row}) > 1:
        check_and_convert_labels(item for item in label_of_each_row if item is not None)
    present = codes >= 0
    return EncodedLabels(check_and_convert_labels(table), codes, None if present.all() else present)
