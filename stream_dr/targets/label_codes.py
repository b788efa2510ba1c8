"""Labels of rows, and one integer code for each label.

The first label that appears has code 0, the next distinct label code 1, and so on. A row without
a label has the code −1. There are two ways to the codes:

- `encode_plain_labels` encodes strings, integers or bools of Python by a dict.
- `label_column` makes an Arrow column of any other labels, and checks them. `encode_labels`
  encodes the column.

The cost is O(rows + labels).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from stream_dr.errors import InvalidTargets
from stream_dr.rows.block import is_valid_unicode
from stream_dr.rows.matrix import view_of_numbers
from stream_dr.rows.table_rows import is_string_type

Label = str | int | bool

INTEGERS = (-(2**63), 2**64 - 1)
"""Smallest and largest integer that can be a label.

Arrow columns and JSON readers cannot represent other integers.
"""

EXACT = 2**53
"""Smallest whole float64 to which more than one integer is rounded."""


MANY_ROWS = 32
"""Number of integers from which Arrow encodes an array faster than a dict."""


def label_column(labels: Any) -> pa.Array:
    """Return labels as an Arrow column of strings, integers or bools.

    Whole floats become integers. None, NaN and the missing values of pandas become null. Raises
    InvalidTargets for labels of different or other types, for integers out of range, and for
    strings with half a character.

    labels: one label for each row, in an array (rows,), a list, or a column of another library.
    """
    if isinstance(labels, np.ndarray) and not labels.dtype.isnative:
        labels = labels.astype(labels.dtype.newbyteorder("="))
    try:
        try:
            column = pa.array(labels, from_pandas=True)
        except OverflowError:
            column = pa.array(labels, pa.uint64(), from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError) as e:
        raise _label_error(labels) from e
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if pa.types.is_floating(column.type):
        return _whole_numbers(column, labels)
    if not is_label_type(column.type):
        raise _label_error(labels)
    return column


def is_label_type(arrow_type: pa.DataType) -> bool:
    """Return True for Arrow types of labels: strings, integers, bools and categories of these."""
    types = pa.types
    if types.is_dictionary(arrow_type):
        return is_label_type(arrow_type.value_type)
    if is_string_type(arrow_type) or types.is_null(arrow_type):
        return True
    return bool(types.is_integer(arrow_type) or types.is_boolean(arrow_type))


def encode_labels(column: pa.Array) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return a column's distinct labels, and one code int32 for each value.

    If the column is already dictionary-encoded, its codes are renumbered, because the dictionary
    may have unused, repeated or null labels. The column is not decoded to plain strings, because
    a label of a megabyte in 10,000 rows would take 10 GB.

    column: column of a type for which `is_label_type` is true.
    """
    if pa.types.is_dictionary(column.type):
        return _reencode_dictionary(column)
    if pa.types.is_null(column.type):
        return (), np.full(len(column), -1, dtype=np.int32)
    encoded = column.dictionary_encode()
    indices = encoded.indices.fill_null(-1) if column.null_count else encoded.indices
    # Copy the codes, because compiled functions take arrays faster that can be written.
    return tuple(encoded.dictionary.to_pylist()), view_of_numbers(indices).copy()


def encode_plain_labels(labels: Any) -> tuple[tuple[Label, ...], np.ndarray] | None:
    """Return the distinct labels and one code for each row, by a dict.

    This is as fast as `encode_labels` for values of Python, and faster for few rows. Returns None
    for long arrays of integers, and for labels that need the checks of `label_column`.
    """
    if isinstance(labels, np.ndarray):
        if len(labels) >= MANY_ROWS and labels.dtype.kind in "iu":
            return None
        labels = labels.tolist()
    types = set(map(type, labels))
    if len(types) != 1 or not types <= {str, int, bool}:
        return None
    code_of = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    if types == {str} and not is_valid_unicode("".join(code_of)):
        return None
    if types == {int} and not INTEGERS[0] <= min(code_of) <= max(code_of) <= INTEGERS[1]:
        return None
    return tuple(code_of), np.fromiter(map(code_of.__getitem__, labels), dtype=np.int32, count=len(labels))


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


def _whole_numbers(column: pa.Array, labels: Any) -> pa.Array:
    """Return whole floats as integers.

    labels: the labels before they became a column.
    """
    numbers = column.drop_null().to_numpy(zero_copy_only=False)
    # Arrow reads a bool after a float as a number.
    has_bools = not isinstance(labels, np.ndarray) and bool in map(type, labels)
    if has_bools or not np.all(numbers == np.floor(numbers)):
        raise _label_error(labels)
    check_float_labels_exact(numbers)
    return column.cast(pa.int64())


def _label_error(labels: Any) -> InvalidTargets:
    """Return the error for labels that no Arrow column of labels holds."""
    items = [item.item() if isinstance(item, np.generic) else item for item in labels]
    items = [item for item in items if item is not None]
    types = set(map(type, items))
    if types == {str}:
        odd = next(label for label in items if not is_valid_unicode(label))
        return InvalidTargets(f"label {odd!r} holds half a character (a lone surrogate); pass whole text.")
    if types == {int}:
        least = min(items)
        largest = max(items)
        for odd in (least, largest):
            if not INTEGERS[0] <= odd <= INTEGERS[1]:
                return InvalidTargets(
                    f"label {odd} is outside the integers from -2**63 to 2**64 - 1; pass such labels as strings."
                )
        return InvalidTargets(
            f"the labels {least} and {largest} are in one batch, and no Arrow type holds both; pass labels as strings."
        )
    names = ", ".join(sorted(kind.__name__ for kind in types))
    return InvalidTargets(
        f"labels are of type {names}; they must be all strings, all integers or all bools. Numbers to regress on go "
        'with target="continuous", in JSON under the key "target".'
    )


def _reencode_dictionary(column: pa.DictionaryArray) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return a dictionary column's distinct labels with new codes.

    The new codes skip unused labels of the column's dictionary, and join repeated labels. The
    dictionary may have nulls.
    """
    labels, code_of = encode_labels(column.dictionary)
    if not len(column):
        return (), np.empty(0, dtype=np.int32)

    places = column.indices.fill_null(0) if column.indices.null_count else column.indices
    # Look up the code of each row's label. Rows without a label get −1 below.
    # Until then they have the index 0, for which `code_of` needs an element even if it is empty.
    codes = np.append(code_of, np.int32(-1))[places.to_numpy()]
    if column.indices.null_count:
        codes[column.indices.is_null().to_numpy(zero_copy_only=False)] = -1

    # Skip unused labels of the dictionary.
    used, codes = old_and_new_codes_by_appearance(codes, len(labels))
    return tuple(labels[i] for i in used.tolist()), codes
